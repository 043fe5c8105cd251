"""What Gradio draws of the page: the settings. The conversation, the list and the panel our own script draws."""

from __future__ import annotations

import gradio as gr

from ..service.chat_service import ChatService
from .settings import build_settings


def build_page(service: ChatService) -> gr.Blocks:
    # gr.Chatbot takes a whole conversation with every token. What our script draws takes a reply's last block.
    with gr.Blocks(title="paged-chat", analytics_enabled=False, fill_width=True) as page:
        build_settings(service)
    return page
