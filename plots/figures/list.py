"""The table of all charts, in the order of the report: a chart is one line here and nowhere else."""

# isort: skip_file
from figures.figure import Figure
from figures.memory import memory
from figures.memory import bytes_by_kind
from figures.latency import latency
from figures.latency import ratio
from figures.peers import peers
from figures.parameter import parameter_time
from figures.parameter import parameter_memory
from figures.parameter import parameter_growth
from figures.growth import growth
from figures.growth import reallocations
from figures.growth import growth_total
from figures.pareto import pareto
from figures.own_tensors import eval_error
from figures.own_tensors import eval_heads
from figures.tiers import tier_time
from figures.tiers import tier_bytes
from figures.tiers import tier_hidden
from figures.bandwidth import bandwidth
from figures.roofline import kernels
from figures.roofline import kernels_ratio
from figures.budget import budget
from figures.checkpoint import checkpoint
from figures.prefill import prefill_workspace
from figures.prefill import prefill_time
from figures.batch import batch_waste
from figures.quality import quality_kl
from figures.quality import quality_loss
from figures.quality import kl_position
from figures.reading import quality_read
from figures.beside_baseline import loss_baseline
from figures.recall import recall
from figures.recall import recall_budget
from figures.stream import stream
from figures.whole_models import model_rate
from figures.whole_models import model_split
from figures.requests import replay_concurrency
from figures.requests import replay_requests
from figures.requests import replay_memory
from figures.requests import hit_rate

FIGURES = [imported for imported in globals().values() if isinstance(imported, Figure)]
