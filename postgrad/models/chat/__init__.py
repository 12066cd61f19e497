"""Messages to tokens and back: templates, tokenizers, tools."""

from postgrad.models.chat.chat import Chat

__all__ = ["Chat"]
