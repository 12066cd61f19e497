"""The equations: pure functions of tensors.

No config, no logging, no device; imports torch and nothing else.
"""
