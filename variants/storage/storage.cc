// The one place that asks whose memory it is.
#include "variants/storage/storage.h"

#include "variants/storage/gpu_storage.h"
#include "variants/storage/host_storage.h"

namespace kv {

std::unique_ptr<Storage> make_storage(const StorageContext& context) {
  if (context.memory.gpu()) return std::make_unique<GpuStorage>(context);
  return std::make_unique<HostStorage>(context);
}

std::string unattendable_reason(const cuda::Gpu* gpu, bool sink_logits, bool soft_caps) {
  if (!gpu || (!sink_logits && !soft_caps)) return "";
  return "the GPU's attention has neither sink logits nor soft-capping, and this model needs " +
         std::string(sink_logits ? "sink logits" : "soft-capping") + ": run it with --device cpu";
}

std::string unstorable_reason(const cuda::Gpu* gpu, int head_dim) {
  return gpu ? GpuStorage::unsupported_reason(head_dim) : "";
}

}  // namespace kv
