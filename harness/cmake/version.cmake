# Writes version.h anew at each build, but touches it only when the commit or its state changed.
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse HEAD OUTPUT_VARIABLE KVLAB_GIT_COMMIT
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
execute_process(COMMAND git -C ${SOURCE_DIR} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
if(failed)
  set(KVLAB_GIT_COMMIT unknown)
endif()
if(changes)
  set(KVLAB_GIT_DIRTY true)
else()
  set(KVLAB_GIT_DIRTY false)
endif()
configure_file(${SOURCE_DIR}/harness/version.h.in ${OUTPUT} @ONLY)
