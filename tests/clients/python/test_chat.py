"""Chat completions, text completions and models through OpenAI's client for Python:  python3 -m unittest -v

The model may be weak: nothing here depends on a good answer.
"""
import asyncio
import math
import unittest

import openai

from server import GREEDY, MODEL, QUESTION, Seen, client, collect, settings


class Models(unittest.TestCase):
    def test_listed_and_found(self):
        self.assertIn(MODEL, [m.id for m in client.models.list()])
        self.assertEqual(client.models.retrieve(MODEL).id, MODEL)


class Chat(unittest.TestCase):
    def check_usage(self, usage):
        self.assertGreater(usage.prompt_tokens, 0)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertLessEqual(usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens)

    def test_whole_and_streamed_are_equal(self):
        whole = client.chat.completions.create(**GREEDY, messages=QUESTION)
        self.assertEqual(whole.object, "chat.completion")
        self.assertEqual(whole.model, MODEL)
        self.assertEqual([c.message.role for c in whole.choices], ["assistant"])
        self.assertTrue(whole.choices[0].message.content)
        self.assertIn(whole.choices[0].finish_reason, ("stop", "length"))
        self.check_usage(whole.usage)

        seen = collect(client.chat.completions.create(
            **GREEDY, messages=QUESTION, stream=True, stream_options={"include_usage": True}))
        self.assertEqual(seen.text, whole.choices[0].message.content)
        self.assertEqual(seen.finish_reasons, [whole.choices[0].finish_reason])
        self.assertGreater(seen.chunks, 3)
        [(choices, usage)] = seen.usage
        self.assertEqual(choices, 0, "usage comes in a chunk of its own")
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
        self.check_usage(usage)

    def test_usage_only_when_asked(self):
        seen = collect(client.chat.completions.create(**GREEDY, messages=QUESTION, stream=True))
        self.assertEqual(seen.usage, [])
        self.assertEqual(len(seen.finish_reasons), 1)

    def test_stream_helper(self):
        with client.chat.completions.stream(**GREEDY, messages=QUESTION) as stream:
            final = stream.get_final_completion()
        whole = client.chat.completions.create(**GREEDY, messages=QUESTION)
        self.assertEqual(final.choices[0].message.content, whole.choices[0].message.content)

    def test_limits(self):
        for name in ("max_tokens", "max_completion_tokens"):
            reply = client.chat.completions.create(
                model=MODEL, temperature=0, messages=QUESTION, **{name: 5}, extra_body={"ignore_eos": True})
            self.assertEqual(reply.choices[0].finish_reason, "length")
            self.assertEqual(reply.usage.completion_tokens, 5)

    def test_logprobs(self):
        reply = client.chat.completions.create(
            **GREEDY | {"max_tokens": 6}, messages=QUESTION, logprobs=True, top_logprobs=3, n=1)
        content = reply.choices[0].logprobs.content
        self.assertEqual(len(content), reply.usage.completion_tokens)
        for entry in content:
            top = [t.logprob for t in entry.top_logprobs]
            self.assertEqual(entry.top_logprobs[0].token, entry.token, "greedy takes the most likely")
            self.assertEqual(len(top), 3)
            self.assertEqual(top, sorted(top, reverse=True))
            self.assertLessEqual(sum(map(math.exp, top)), 1.001)
        if reply.choices[0].finish_reason == "length":
            text = b"".join(bytes(entry.bytes) for entry in content).decode()
            self.assertEqual(text.strip(), reply.choices[0].message.content.strip())


class Text(unittest.TestCase):
    request = GREEDY | {"prompt": "Once upon a time, a kind boy named Ben"}

    def test_whole_and_streamed_are_equal(self):
        whole = client.completions.create(**self.request)
        self.assertEqual(whole.object, "text_completion")
        self.assertTrue(whole.choices[0].text)
        seen = collect(client.completions.create(**self.request, stream=True, stream_options={"include_usage": True}))
        self.assertEqual(seen.text, whole.choices[0].text)
        self.assertEqual(seen.finish_reasons, [whole.choices[0].finish_reason])
        self.assertEqual(seen.usage[0][1].completion_tokens, whole.usage.completion_tokens)

    def test_prompt_of_tokens(self):
        self.assertEqual(client.completions.create(**self.request | {"prompt": [1, 40, 41, 42]}).usage.prompt_tokens, 4)

    def test_stop_strings(self):
        full = client.completions.create(**self.request).choices[0].text
        stop = full[6:11]  # Begins and ends inside tokens.
        self.assertEqual(len(stop), 5, full)
        wanted = full[:full.index(stop)]
        whole = client.completions.create(**self.request, stop=stop)
        self.assertEqual((whole.choices[0].text, whole.choices[0].finish_reason), (wanted, "stop"))
        seen = collect(client.completions.create(**self.request, stop=["\u0001 never", stop], stream=True))
        self.assertEqual((seen.text, seen.finish_reasons), (wanted, ["stop"]))

    def test_seeds(self):
        def ask(seed):
            return client.completions.create(
                model=MODEL, prompt="Once upon a time", temperature=1.3, max_tokens=24, seed=seed).choices[0].text
        self.assertEqual(ask(7), ask(7))
        self.assertGreater(len({ask(seed) for seed in range(6)}), 1, "six seeds, one text")

    def test_logprobs(self):
        reply = client.completions.create(**self.request | {"max_tokens": 5}, logprobs=2)
        p, count = reply.choices[0].logprobs, reply.usage.completion_tokens
        self.assertEqual([len(p.tokens), len(p.token_logprobs), len(p.top_logprobs), len(p.text_offset)], [count] * 4)
        self.assertLessEqual(max(p.token_logprobs), 0)
        self.assertEqual(p.text_offset, sorted(p.text_offset))


class Many(unittest.TestCase):
    prompts = ["Once upon a time", "The red door", "Every day, Ben", "A dog slept", "In the morning", "Her best friend",
               "The wind", "Use the orange key"]

    async def ask_all(self):
        async with openai.AsyncOpenAI(**settings()) as many:
            async def ask(prompt):
                seen = Seen()
                async for chunk in await many.completions.create(
                        **GREEDY | {"prompt": prompt, "max_tokens": 32}, stream=True):
                    seen.add(chunk)
                return seen.text
            return await asyncio.gather(*map(ask, self.prompts)), [await ask(prompt) for prompt in self.prompts]

    def test_eight_streams_give_the_texts_that_each_gives_alone(self):
        together, alone = asyncio.run(self.ask_all())
        self.assertEqual(together, alone)


if __name__ == "__main__":
    unittest.main()
