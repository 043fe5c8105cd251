"""The page in the browser: a Gradio page whose conversation is drawn from what `ChatService` tells."""
