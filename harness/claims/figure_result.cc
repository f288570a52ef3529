#include "harness/claims/figure_result.h"

namespace kv::claims {

const results::Schema<FigureResult>& figure_schema() {
  using F = FigureResult;
  static const results::Schema<F> schema(
      "claims.csv",
      {{"source", "", &F::source, "the claim file"},
       {"claim", "", &F::claim, "its id there"},
       {"figure", "", &F::figure, "which of the claim's figures: the table's row and column"},
       {"check", "", &F::check, "how it is checked"},
       {"replica", "", &F::replica, "exact, or qualitative: other inputs or another size than the source's"},
       {"machine", "", &F::machine, "yes if the verdict rests on times of this machine"},
       {"published", "", &F::published, "as printed"},
       {"computed", "", &F::computed, "closed form or arithmetic, in the published unit"},
       {"measured", "", &F::measured, "and its 95 % interval"},
       {"computed_value", "", &F::computed_value, "in bytes, seconds or shares of 1"},
       {"measured_value", "", &F::measured_value, "in the same unit"},
       {"interval_low", "", &F::interval_low, "its 95 % interval"},
       {"interval_high", "", &F::interval_high, ""},
       {"verdict", "", &F::verdict, "what became of it: configs/claims/README.md has the verdicts"},
       {"reason", "", &F::reason,
        "the arithmetic where a figure is wrong, how a unit was read, or why it is not reproduced"},
       {"note", "", &F::note, "what the claim file says about the comparison"},
       {"text", "", &F::text, "what is claimed"},
       {"title", "", &F::title, "of the source"},
       {"document", "", &F::document, "the source"},
       {"where", "", &F::where, "section or table"},
       {"quote", "", &F::quote, "what the source says"},
       {"setting", "", &F::setting, "what the source measured on, and what stands for it here"},
       {"how", "", &F::how, "the expressions that were evaluated, and what their names stand for",
        results::Later{}},
       {"run", "", &F::run, "the sweep configs of the runs that the values come from", results::Later{}}});
  return schema;
}

}  // namespace kv::claims
