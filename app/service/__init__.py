"""What both screens call (`chat_service.ChatService`), and the replies that are being written behind it."""
