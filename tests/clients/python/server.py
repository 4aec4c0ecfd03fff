"""Where the server under test is, and small helpers.

KVIST_URL      address without /v1, e.g. http://127.0.0.1:8080
KVIST_MODEL    a served model; unset: the first that the server lists
KVIST_API_KEY  set when the server asks for one
"""
import os
import urllib.error
import urllib.request

import openai

BASE = os.environ["KVIST_URL"].rstrip("/")
KEY = os.environ.get("KVIST_API_KEY")


def settings(key=KEY):
    """No retries: an error is to be seen, not healed."""
    return {"base_url": f"{BASE}/v1", "api_key": key or "none", "max_retries": 0, "timeout": 120}


client = openai.OpenAI(**settings())
MODEL = os.environ.get("KVIST_MODEL") or client.models.list().data[0].id

QUESTION = [
    {"role": "system", "content": "Use only the text to answer."},
    {"role": "user", "content": "The purple key opens the shiny suitcase. Use the orange key for the small trunk. "
                                "What does the orange key open?"},
]
GREEDY = {"model": MODEL, "temperature": 0, "max_tokens": 24}


class Seen:
    """What a stream of chat or text chunks brought."""

    def __init__(self):
        self.text, self.finish_reasons, self.usage, self.chunks = "", [], [], 0

    def add(self, chunk):
        self.chunks += 1
        if chunk.usage:
            self.usage.append((len(chunk.choices), chunk.usage))
        for choice in chunk.choices:
            self.text += (choice.delta.content if hasattr(choice, "delta") else choice.text) or ""
            if choice.finish_reason:
                self.finish_reasons.append(choice.finish_reason)


def collect(stream):
    seen = Seen()
    for chunk in stream:
        seen.add(chunk)
    return seen


def gauge(name):
    """Value at /metrics, or None where the server has none of that name."""
    request = urllib.request.Request(f"{BASE}/metrics", headers={"Authorization": f"Bearer {KEY}"} if KEY else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            lines = [line for line in reply.read().decode().splitlines() if line.startswith(name)]
    except urllib.error.HTTPError:
        return None
    return float(lines[0].rsplit(" ", 1)[1]) if lines else None
