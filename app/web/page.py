"""The page, in Gradio: a frame for the conversation, which our script draws, and the settings."""

from __future__ import annotations

import gradio as gr

from ..service.chat_service import ChatService
from .page_assets import START
from .settings import build_settings


def build_page(service: ChatService) -> gr.Blocks:
    # gr.Chatbot takes a whole conversation with every token. What is drawn here takes a reply's last block.
    with gr.Blocks(title="paged-chat", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(
            html_template='<div class="pc-loading">paged-chat</div>',
            js_on_load=START,
            apply_default_css=False,
            elem_id="paged-chat",
        )
        build_settings(service)
    return page
