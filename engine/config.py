"""What an engine is built from: one frozen value, checked where it is made."""

from dataclasses import dataclass

from .errors import InvalidParameter
from .number_range import NumberRange, check_numbers, shown

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_MAX_NUM_SEQS = 64
DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "float32", "bfloat16", "float16")
WEIGHTS = ("auto", "dense", "int8", "int4")
KERNELS = ("auto", "triton", "cpu", "reference")
SPECULATION = ("auto", "off")
RANGES = {
    "block_size": NumberRange(1, 256),
    "num_blocks": NumberRange(2, 2**31 - 1),
    "max_num_seqs": NumberRange(1, 4096),
    "max_num_batched_tokens": NumberRange(1, 2**20),
    "max_draft_tokens": NumberRange(1, 64),
    "max_model_len": NumberRange(2, 2**31 - 1),
}
MAY_BE_NONE = frozenset(["num_blocks", "max_model_len"])


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How to build an `Engine`.

    model: catalogue name, folder in Hugging Face layout, `.gguf` file, or hub id.
    device: "auto" takes a GPU where there is one; also "cpu", "cuda", "cuda:1".
    dtype: of weights, activations and the KV cache; "auto" takes bfloat16 where the processor computes it well.
    weights: how linear layers are stored. "dense" keeps `dtype`. "int8" and "int4" (CPU) are packed with a scale for
        every 32 columns: a token's logits are then the same to the bit alone, in a batch, cached or recomputed. "auto"
        packs on a CPU, in 4 bits where the file has 4, and lets dense weights take long prompts where that is faster.
    kernels: which implementation of the operations runs; "auto" takes the fastest for the device.
    block_size: tokens per KV block.
    num_blocks: size of the pool, the null block included; None sizes it from `kv_memory`.
    kv_memory: bytes for the pool (an int), or a share of the free memory (a float in (0, 1]); num_blocks wins over it.
    max_num_seqs: most sequences that run in one step.
    max_num_batched_tokens: most tokens that one step computes.
    max_model_len: longest prompt plus reply, in tokens; None takes the model's own window.
    prefix_caching: reuse KV blocks of equal prefixes.
    speculation: "auto" guesses tokens ahead from what stands in the chat already and verifies them in one step, where
        that is measured to pay; which tokens come doesn't depend on it. "off" never does.
    max_draft_tokens: most tokens guessed ahead in one step. Up to 8 rows share one reading of packed weights; steps of
        12 rows and more may be rounded otherwise than shorter ones.
    watermark: share of the pool kept free when a new sequence is admitted beside running ones.
    check_integrity: verify the pool's invariants after every step (slow; for tests and debugging).

    Raises InvalidParameter for a value out of range.
    """

    model: str = DEFAULT_MODEL
    device: str = "auto"
    dtype: str = "auto"
    weights: str = "auto"
    kernels: str = "auto"
    block_size: int = 16
    num_blocks: int | None = None
    kv_memory: int | float | None = None
    max_num_seqs: int = DEFAULT_MAX_NUM_SEQS
    max_num_batched_tokens: int = 2048
    max_model_len: int | None = None
    prefix_caching: bool = True
    speculation: str = "auto"
    max_draft_tokens: int = 7
    watermark: float = 0.01
    check_integrity: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise InvalidParameter(f"model must be a name or a path, not {shown(self.model)}")
        kind, colon, index = self.device.partition(":") if isinstance(self.device, str) else ("", "", "")
        if kind not in DEVICES or (colon and not (kind == "cuda" and index.isdecimal())):
            raise InvalidParameter(f"device must be auto, cpu, cuda or cuda:N, not {shown(self.device)}")
        _one_of("dtype", self.dtype, DTYPES)
        _one_of("weights", self.weights, WEIGHTS)
        _one_of("kernels", self.kernels, KERNELS)
        _one_of("speculation", self.speculation, SPECULATION)
        check_numbers(self, RANGES, MAY_BE_NONE)
        if self.kv_memory is not None:
            share = isinstance(self.kv_memory, float)
            if isinstance(self.kv_memory, bool) or not (
                0 < self.kv_memory <= 1 if share else isinstance(self.kv_memory, int) and self.kv_memory > 0
            ):
                raise InvalidParameter(
                    f"kv_memory must be a number of bytes, or a share of the free memory above 0 and up to 1.0, "
                    f"not {shown(self.kv_memory)}"
                )
        if not isinstance(self.watermark, int | float) or not 0 <= self.watermark < 1:
            raise InvalidParameter(f"watermark must be at least 0 and under 1, not {shown(self.watermark)}")
        for name in ("prefix_caching", "check_integrity"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidParameter(f"{name} must be True or False, not {shown(getattr(self, name))}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidParameter(f"{name} must be one of {', '.join(allowed)}, not {shown(value)}")
