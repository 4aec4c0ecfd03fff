"""Tools, structured output, several prompts, log probabilities of prompts and embeddings through OpenAI's client.

The model may be weak: nothing here depends on a good answer.
"""
import json
import math
import unittest
from typing import Literal

import openai
from pydantic import BaseModel, Field

from server import GREEDY, MODEL, QUESTION, client

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a city.", "strict": True,
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"enum": [1, 3]}},
                   "required": ["city", "days"], "additionalProperties": False}}}
STARTS = ["Once upon a time", "The red door", "Every day, Ben"]


class Door(BaseModel):
    color: Literal["red", "teal"]
    opens: bool
    keys: list[int] = Field(max_length=2)


class Tools(unittest.TestCase):
    def test_a_forced_call_comes_in_pieces_with_index_and_id(self):
        """Where the model's template knows no tools, that is said."""
        request = GREEDY | {"messages": QUESTION, "max_tokens": 80, "tools": [WEATHER], "tool_choice": "required"}
        try:
            whole = client.chat.completions.create(**request)
        except openai.BadRequestError as refused:
            self.assertIn("tools", refused.message)
            self.assertEqual(refused.param, "tool_choice")
            return
        self.assertEqual(whole.choices[0].finish_reason, "tool_calls")
        [call] = whole.choices[0].message.tool_calls
        self.assertEqual(call.function.name, "weather")
        self.assertEqual(json.loads(call.function.arguments).keys(), {"city", "days"})
        name, arguments, ids = "", "", set()
        for chunk in client.chat.completions.create(**request, stream=True):
            for piece in chunk.choices[0].delta.tool_calls or []:
                self.assertEqual(piece.index, 0)
                ids |= {piece.id} - {None}
                name += piece.function.name or ""
                arguments += piece.function.arguments or ""
        self.assertEqual((name, arguments, len(ids)), ("weather", call.function.arguments, 1))

    def test_a_call_and_its_result_go_on(self):
        messages = QUESTION + [
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome", "days": 1}'}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]
        reply = client.chat.completions.create(**GREEDY, messages=messages, tools=[WEATHER])
        self.assertIn(reply.choices[0].finish_reason, ("stop", "length", "tool_calls"))


class Structured(unittest.TestCase):
    def test_a_schema_holds_whole_and_streamed(self):
        schema = {"type": "object", "properties": {"color": {"enum": ["red", "teal"]}, "keys": {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 2}},
                  "required": ["color", "keys"], "additionalProperties": False}
        request = GREEDY | {"messages": QUESTION, "max_tokens": 200,
                            "response_format": {"type": "json_schema", "json_schema": {"name": "door", "strict": True, "schema": schema}}}
        whole = client.chat.completions.create(**request).choices[0]
        self.assertEqual(whole.finish_reason, "stop")
        value = json.loads(whole.message.content)
        self.assertIn(value["color"], ("red", "teal"))
        self.assertLessEqual(len(value["keys"]), 2)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**request, stream=True))
        self.assertEqual(text, whole.message.content)

    def test_the_clients_own_parser(self):
        reply = client.chat.completions.parse(**GREEDY | {"max_tokens": 400}, messages=QUESTION, response_format=Door)
        self.assertIsInstance(reply.choices[0].message.parsed, Door)

    def test_any_json(self):
        reply = client.chat.completions.create(**GREEDY | {"max_tokens": 60}, messages=QUESTION, response_format={"type": "json_object"})
        self.assertTrue(reply.choices[0].message.content.lstrip().startswith("{"))


class Prompts(unittest.TestCase):
    def test_each_of_several_gets_what_it_gets_alone(self):
        alone = [client.completions.create(**GREEDY, prompt=prompt) for prompt in STARTS]
        together = client.completions.create(**GREEDY, prompt=STARTS, n=2)
        self.assertEqual([c.index for c in together.choices], list(range(6)))
        for i, choice in enumerate(together.choices):
            self.assertEqual(choice.text, alone[i // 2].choices[0].text)
        self.assertEqual(together.usage.prompt_tokens, sum(a.usage.prompt_tokens for a in alone))
        streamed = [""] * 3
        for chunk in client.completions.create(**GREEDY, prompt=STARTS, stream=True):
            for choice in chunk.choices:
                streamed[choice.index] += choice.text
        self.assertEqual(streamed, [a.choices[0].text for a in alone])

    def test_how_likely_a_text_is(self):
        """As evaluation harnesses ask: the prompt's own log probabilities, and whether greedy would have written it."""
        start = client.completions.create(**GREEDY | {"max_tokens": 8}, prompt=STARTS[0], extra_body={"ignore_eos": True})
        text = STARTS[0] + start.choices[0].text
        for more in ({"max_tokens": 0}, {"max_tokens": 1}):
            reply = client.completions.create(**GREEDY | more, prompt=text, echo=True, logprobs=1)
            p = reply.choices[0].logprobs
            count = reply.usage.prompt_tokens
            self.assertTrue(reply.choices[0].text.startswith(text))
            self.assertEqual(len(p.token_logprobs), count + more["max_tokens"])
            self.assertIsNone(p.token_logprobs[0])
            self.assertTrue(all(math.isfinite(x) and x <= 0 for x in p.token_logprobs[1:]))
            written = [i for i in range(1, count) if p.text_offset[i] >= len(STARTS[0])]
            self.assertGreater(len(written), 4)
            greedy = [p.token_logprobs[i] == max(p.top_logprobs[i].values()) for i in written]
            self.assertGreaterEqual(sum(greedy), len(written) - 1, "all but where the text is cut into other tokens")


class Embeddings(unittest.TestCase):
    def test_vectors_have_length_one_and_their_place(self):
        reply = client.embeddings.create(model=MODEL, input=STARTS)
        self.assertEqual([e.index for e in reply.data], [0, 1, 2])
        for entry in reply.data:
            self.assertAlmostEqual(math.sqrt(sum(x * x for x in entry.embedding)), 1, places=4)
        alone = client.embeddings.create(model=MODEL, input=STARTS[1], encoding_format="float")
        self.assertEqual(alone.data[0].embedding, reply.data[1].embedding)
        short = client.embeddings.create(model=MODEL, input=STARTS[1], dimensions=8)
        self.assertEqual(len(short.data[0].embedding), 8)


if __name__ == "__main__":
    unittest.main()
