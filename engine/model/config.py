"""What a decoder needs to know about a model beside its weights."""

from dataclasses import dataclass, field
from typing import Literal

from ..counted import counted
from ..errors import ModelFileInvalid

Family = Literal["llama", "mistral", "qwen2", "qwen3", "smollm3"]
RopeKind = Literal["default", "linear", "llama3", "yarn"]

# Beyond these a header is damaged or hostile, and what is sized from it would exhaust the memory before it is noticed.
MAX_VOCAB = 2**24
MAX_WIDTH = 2**20
MAX_LAYERS = 1024
MAX_HEADS = 4096
MAX_HEAD_DIM = 1024
MAX_POSITIONS = 2**24


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """How positions turn queries and keys (Su et al. 2021), and how that is stretched to longer contexts.

    linear: all frequencies divided by `factor` (Chen et al. 2023).
    llama3: low frequencies divided, high ones kept, a ramp between (Llama 3.1's reference code).
    yarn: the same with another ramp, and cos and sin multiplied by `attention_factor` (Peng et al. 2023).
    frequency_factors: divide each frequency on top of that; GGUF files carry Llama 3's ramp this way.
    """

    theta: float = 10000.0
    kind: RopeKind = "default"
    factor: float = 1.0
    original_max_position: int = 0  # llama3, yarn
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float = 1.0  # yarn
    truncate: bool = True  # yarn: the ramp's ends are rounded to whole features
    frequency_factors: tuple[float, ...] = ()  # [head_dim / 2] or none


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One decoder-only transformer: RMSNorm before attention and MLP, rotary positions, a SiLU-gated MLP.

    Raises ModelFileInvalid, with `source` in the message, for sizes that don't fit together.
    """

    source: str = field(default="", compare=False, repr=False)  # what the numbers were read from, for messages
    family: Family
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position: int  # tokens in the window
    tie_embeddings: bool
    attention_bias: bool  # of the query, key and value projections
    output_bias: bool  # of the attention's output projection
    mlp_bias: bool
    qk_norm: bool  # RMSNorm over each head of queries and keys
    windows: tuple[int | None, ...]  # per layer: a query sees itself and the window - 1 tokens before it
    nope: tuple[bool, ...]  # per layer: no rotary positions
    rope: RopeConfig
    eos_token_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelFileInvalid(
                f"{self.source}: {counted(self.num_heads, 'query head')} can't share "
                f"{counted(self.num_kv_heads, 'key/value head')} evenly"
            )
        if self.head_dim % 2:
            raise ModelFileInvalid(f"{self.source}: rotary positions need an even head size, not {self.head_dim}")
        if self.num_heads * self.head_dim > MAX_WIDTH:
            raise ModelFileInvalid(
                f"{self.source}: {counted(self.num_heads, 'head')} of {self.head_dim} features are too many"
            )
        if self.rope.frequency_factors and len(self.rope.frequency_factors) != self.head_dim // 2:
            raise ModelFileInvalid(
                f"{self.source}: {len(self.rope.frequency_factors)} rotary frequency factors for a head size of "
                f"{self.head_dim}; there must be {self.head_dim // 2}"
            )
        assert len(self.windows) == len(self.nope) == self.num_layers

    @property
    def query_width(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.num_kv_heads * self.head_dim
