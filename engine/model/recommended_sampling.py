"""How a model's makers would have its replies drawn, where they say so: read without torch, before it is loaded."""

from collections.abc import Mapping

from ..errors import ModelFileInvalid, ModelNotFound
from ..request import RANGES
from .catalog import catalog_entry, model_on_disk
from .fields import read_json

GENERATION_FILE = "generation_config.json"
RECOMMENDABLE = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def recommended_sampling(model: str) -> Mapping[str, float]:
    """Fields of SamplingParams with the values that suit a model; empty where nothing is known of it.

    The catalogue says it of its models; of a folder in Hugging Face layout, and of a hub model that is on this disk,
    generation_config.json does. What there is out of range is left out, as is all of a file that can't be read: a
    recommendation is no reason to refuse a model.
    """
    if (entry := catalog_entry(model)) is not None:
        return entry.sampling
    try:
        source = model_on_disk(model)
        if source.kind != "folder":
            return {}
        fields = read_json(source.path / GENERATION_FILE)
    except (ModelNotFound, ModelFileInvalid, OSError):
        return {}
    if fields.values.get("do_sample") is False:
        return {"temperature": 0.0}
    found: dict[str, float] = {}
    for name in RECOMMENDABLE:
        value = fields.values.get(name)
        if value in RANGES[name] and isinstance(value, int | float):
            found[name] = value
    return found
