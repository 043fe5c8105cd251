"""The settings: what model answers, and how the open chat's replies are drawn."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ..service.chat_service import ChatService
from ..service.default_sampling import GENERAL_SAMPLING
from .handlers import SamplingForm, SettingsHandlers
from .setting_labels import SETTING_LABELS

MAX_REPLIES = 8
MAX_BEAMS = 16
MAX_ALTERNATIVES = 20
MAX_SYSTEM_PROMPT_LENGTH = 100_000
MOST_TOKENS = 2**31 - 1
MAX_EXACT = 2**53 - 1  # up to there a browser's numbers are exact
_DEFAULTS = SamplingForm.of(GENERAL_SAMPLING)
# The page's script says which chat the settings are of, when they are opened and when another chat is; it is told that
# somebody hears it.
_HEAR_OF_CHAT = """
addEventListener("paged-chat:settings", (event) => {
  props.value = event.detail.chatId;
  trigger("input");
});
dispatchEvent(new CustomEvent("paged-chat:settings-stand"));
"""
_LOADED = "() => dispatchEvent(new CustomEvent('paged-chat:settings-read'))"
# Events that only touch a chat's row: they wait for nobody, and show no progress.
_QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def _of_chat(call: str) -> dict[str, Any]:
    """The same for what belongs to a chat, which the page names first (`settings_chat.js`).

    One that isn't begun yet begins with the first thing that is set.
    call: of which chat, in the page's script; `more` is what the handler takes beside it.
    """
    return {**_QUIET, "js": f"async (chat, ...more) => [await pagedChat.settingsChat.{call}, ...more]"}


_SETS = _of_chat("of(chat)")
_SETS_NOTHING = _of_chat("of(chat, false)")
_SETS_WHAT_IS_WRITTEN = _of_chat('of(chat, more[0] !== "")')
_USES_KEPT_PROMPT = _of_chat('ofKept(chat, "system_prompts", more[0])')
_USES_KEPT_SETTINGS = _of_chat('ofKept(chat, "presets", more[0])')


def build_settings(service: ChatService) -> None:
    """Adds the drawer to the page that is being built."""
    handlers = SettingsHandlers(service)
    with gr.Column(elem_id="pc-settings"):
        with gr.Row(elem_classes="pc-settings-head"):
            gr.HTML("<h2>Settings</h2>")
            gr.Button("Close", size="sm", scale=0, min_width=90, elem_id="pc-settings-close")
        asked_for = gr.HTML(html_template="", js_on_load=_HEAR_OF_CHAT, visible="hidden")
        chat_id = gr.Textbox(visible="hidden")
        fault = gr.Markdown(visible=False, elem_id="pc-settings-fault")

        gr.Markdown("### Model")
        model = gr.Dropdown(
            [service.engine_status.model],
            value=service.engine_status.model,
            show_label=False,
            allow_custom_value=True,
            elem_id="pc-model",
            info="Catalogue name, folder, .gguf file, or hub id. All chats use it.",
        )
        with gr.Row():
            switch = gr.Button("Load this model", size="sm", elem_id="pc-switch-model")
            force = gr.Button(
                "Load it all the same", size="sm", variant="stop", visible=False, elem_id="pc-force-model"
            )

        refusal = gr.HTML(visible=False, elem_id="pc-model-refusal")
        gr.Markdown("### System prompt of this chat")
        system_prompt = gr.Textbox(
            show_label=False,
            lines=3,
            max_lines=12,
            max_length=MAX_SYSTEM_PROMPT_LENGTH,
            placeholder="None: the model's own, if it has one",
            elem_id="pc-system-prompt",
        )
        prompt_preset, keep_prompt, drop_prompt = _preset_row("system prompts", "pc-prompt-preset")

        gr.Markdown("### Replies of this chat")
        origin = gr.HTML(elem_id="pc-sampling-origin")
        fields = _sampling_fields()
        reset = gr.Button("Reset all of these", size="sm", elem_id="pc-reset-sampling")
        sampling_preset, keep_sampling, drop_sampling = _preset_row("settings", "pc-sampling-preset")

    asked_for.input(
        handlers.load,
        asked_for,
        [chat_id, model, model, refusal, force, fault, system_prompt, prompt_preset, sampling_preset, *fields, origin],
        **_QUIET,
    ).then(None, js=_LOADED)
    system_prompt.blur(handlers.save_system_prompt, [chat_id, system_prompt], **_SETS_WHAT_IS_WRITTEN)
    # What somebody does, and no change that comes from reading a chat: of those Gradio tells one by one, and an empty
    # number is 0 until its own has come.
    done_by_people = [field.input for field in fields] + [one.release for one in fields if isinstance(one, gr.Slider)]
    gr.on(
        done_by_people,
        handlers.save_sampling,
        [chat_id, *fields],
        [fault, origin],
        trigger_mode="always_last",
        **_SETS,
    )
    reset.click(handlers.reset_sampling, chat_id, [*fields, origin, fault], **_SETS_NOTHING)

    prompt_preset.input(
        handlers.use_system_prompt,
        [chat_id, prompt_preset],
        system_prompt,
        **_USES_KEPT_PROMPT,
    )
    keep_prompt.click(handlers.keep_system_prompt, [prompt_preset, system_prompt], prompt_preset, **_QUIET)
    drop_prompt.click(handlers.drop_system_prompt, prompt_preset, prompt_preset, **_QUIET)
    sampling_preset.input(
        handlers.use_sampling,
        [chat_id, sampling_preset],
        [*fields, origin, fault],
        **_USES_KEPT_SETTINGS,
    )
    keep_sampling.click(
        handlers.keep_sampling,
        [chat_id, sampling_preset, *fields],
        [sampling_preset, origin],
        **_SETS_NOTHING,
    )
    drop_sampling.click(handlers.drop_sampling, [chat_id, sampling_preset], [sampling_preset, origin], **_SETS_NOTHING)

    switch.click(handlers.switch_model, [chat_id, model], [refusal, force, origin], **_SETS_NOTHING)
    force.click(handlers.force_model, [chat_id, model], [refusal, force, origin], **_SETS_NOTHING)


def _preset_row(what: str, elem_id: str) -> tuple[gr.Dropdown, gr.Button, gr.Button]:
    with gr.Row(elem_classes="pc-presets"):
        preset = gr.Dropdown(
            [],
            value=None,
            label=f"Kept {what}",
            info="Choose, or keep these under a name.",
            allow_custom_value=True,
            elem_id=elem_id,
            scale=3,
            min_width=140,
        )
        keep = gr.Button("Keep", size="sm", scale=1, min_width=60)
        drop = gr.Button("Drop", size="sm", scale=1, min_width=60)
    return preset, keep, drop


def _sampling_fields() -> list[Any]:
    """Components in the order of `SamplingForm`'s fields; each slider can be reset by itself (`settings_fields.js`)."""
    fields = _first_fields()
    with gr.Accordion("More", open=False):
        fields |= _fields_of_drawing() | _fields_of_beam_search()
    return [fields[name] for name in SamplingForm.__slots__]


def _first_fields() -> dict[str, Any]:
    """Shown without being asked for."""
    return {
        "temperature": _slider("temperature", 0, 2, 0.05, "0 always takes the most likely token."),
        "num_replies": _slider("num_replies", 1, MAX_REPLIES, 1, "Their prompt is computed once."),
        "max_tokens": _whole_number("max_tokens", 1, MOST_TOKENS, "Empty: what the window holds."),
        "seed": _whole_number("seed", 0, MAX_EXACT, "Empty: another one for each reply."),
    }


def _fields_of_drawing() -> dict[str, Any]:
    return {
        "top_p": _slider("top_p", 0.01, 1, 0.01, "Draw from the likeliest tokens that reach p together."),
        "top_k": _slider("top_k", 0, 200, 1, "Draw from the k likeliest tokens; 0 is all."),
        "min_p": _slider("min_p", 0, 1, 0.01, "Drop tokens under p times the likeliest one."),
        "repetition_penalty": _slider("repetition_penalty", 0.5, 2, 0.01, "Over 1: say less again."),
        "presence_penalty": _slider("presence_penalty", -2, 2, 0.05, "Taken off tokens already said."),
        "frequency_penalty": _slider("frequency_penalty", -2, 2, 0.05, "The same, for each time."),
        "stop": gr.Textbox(
            _DEFAULTS.stop,
            label=SETTING_LABELS["stop"],
            info="One on each line; a reply ends before them.",
            lines=2,
            elem_id="pc-stop",
        ),
        "num_alternatives": _slider(
            "num_alternatives",
            0,
            MAX_ALTERNATIVES,
            1,
            "A new reply then shows what else could have stood there, and branches at it; 0 keeps none.",
        ),
    }


def _fields_of_beam_search() -> dict[str, Any]:
    return {
        "beam_width": _slider(
            "beam_width",
            1,
            MAX_BEAMS,
            1,
            "Over 1 looks for the likeliest replies with so many beams, told at its end; needs temperature 0.",
        ),
        "length_penalty": _slider("length_penalty", -2, 4, 0.1, "Of beam search: over 0 favours long."),
        "early_stopping": gr.Dropdown(
            [
                ("once as many replies have ended", "true"),
                ("once it looks settled", "false"),
                ("once it surely is", "never"),
            ],
            value=_DEFAULTS.early_stopping,
            label=SETTING_LABELS["early_stopping"],
            elem_id="pc-early_stopping",
        ),
    }


def _slider(name: str, least: float, most: float, step: float, info: str) -> gr.Slider:
    value = getattr(_DEFAULTS, name)
    return gr.Slider(least, most, value=value, step=step, label=_label(name), info=info, elem_id=f"pc-{name}")


def _whole_number(name: str, least: int, most: int, info: str) -> gr.Number:
    value = getattr(_DEFAULTS, name)
    return gr.Number(
        value, label=_label(name), info=info, precision=0, minimum=least, maximum=most, elem_id=f"pc-{name}"
    )


def _label(name: str) -> str:
    """Of a field of `SamplingForm`."""
    return SETTING_LABELS[{"num_replies": "n", "num_alternatives": "logprobs"}.get(name, name)]
