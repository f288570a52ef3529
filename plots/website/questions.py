"""Questions that a site answers, each with the report's own sentence and table: what a sweep point's main measure is decides
which question it answers."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from decision import Point, points
from page import nested
from tables import CELL
from website.collect import Folder, slug

# By the main measure of a sweep point (answers.json), in the order of the page.
QUESTIONS = {
    "kl_mean": "Which cache loses least?",
    "append_total_us": "What does growing by concatenation cost?",
    "step_p50_us": "Which cache makes a step fastest?",
    "prefill_p50_us": "What does a prompt cost?",
    "goodput_per_s": "Which cache serves most requests?",
    "accuracy": "Which cache still finds what is asked for?",
    "err_rel_l2": "Which cache has the least error at equal bytes?",
    "fork_p50_us": "What does a fork cost?",
}
UNNAMED = ("custom", "", None)  # a geometry that is no known model


@dataclass(frozen=True)
class Answer:
    folder: Folder
    number: int  # of the folder
    points: list[Point]  # of each panel the longest


@dataclass(frozen=True)
class Question:
    title: str
    answers: list[Answer]

    @property
    def page(self) -> str:
        return f"questions/{slug('-'.join(self.title.rstrip('?').lower().split()))}.html"

    @property
    def first(self) -> tuple[Answer, Point]:
        """The one that the overview shows: of a run whose A/A tests hold; times at the longest, losses of most variants."""

        def key(pair: tuple[Answer, Point]) -> tuple:
            answer, point = pair
            size, ranked = point.length or 0, sum(line.status == "ok" for line in point.lines)
            return (not answer.folder.trust.aa_failed, *((ranked, size) if point.measure in ("kl_mean", "err_rel_l2") else (size, ranked)))

        return max(((answer, point) for answer in self.answers for point in answer.points), key=key)


def questions(folders: Iterable[Folder]) -> list[Question]:
    found: dict[str, dict[str, list[Answer]]] = defaultdict(lambda: defaultdict(list))
    for number, folder in enumerate(folders):
        by_measure: dict[str, dict[str, Point]] = defaultdict(dict)
        for point in points(folder.run.cells.with_row_index(CELL), [folder.run]):
            by_measure[point.measure].setdefault(point.panel, point)
        for measure, panels in by_measure.items():
            found[measure][titled(measure, folder)].append(Answer(folder, number, list(panels.values())))
    return [Question(title, answers) for measure in QUESTIONS for title, answers in found[measure].items()]


def titled(measure: str, folder: Folder) -> str:
    """A loss is one model's; times and errors of several models are on one page."""
    model = nested(folder.run.env, "model", "name")
    return f"Which cache for {model}?" if measure == "kl_mean" and model not in UNNAMED else QUESTIONS.get(measure, "")
