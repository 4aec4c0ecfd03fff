"""Errors and cancellation through OpenAI's client for Python:  python3 -m unittest -v"""
import asyncio
import time
import unittest

import openai

from server import GREEDY, KEY, MODEL, QUESTION, client, gauge, settings

LONG = {"model": MODEL, "prompt": "Once upon a time", "temperature": 0, "max_tokens": 2000, "stream": True,
        "extra_body": {"ignore_eos": True}}


def story():
    return client.completions.create(**GREEDY, prompt="Once upon a time").choices[0].text


class Errors(unittest.TestCase):
    def test_unknown_model(self):
        wrong = GREEDY | {"model": "no-such-model", "messages": QUESTION}
        with self.assertRaises(openai.NotFoundError) as caught:
            client.chat.completions.create(**wrong)
        self.assertEqual(caught.exception.code, "model_not_found")
        self.assertIn("no-such-model", str(caught.exception))
        with self.assertRaises(openai.NotFoundError):
            client.chat.completions.create(**wrong, stream=True)
        with self.assertRaises(openai.NotFoundError):
            client.models.retrieve("no-such-model")

    def test_bad_parameter_is_named(self):
        cases = [("temperature", {"temperature": "hot"}), ("temperature", {"temperature": 9}), ("top_p", {"top_p": -1}),
                 ("max_tokens", {"max_tokens": -1}), ("messages", {"messages": []}), ("messages", {"messages": "hello"}),
                 ("messages", {"messages": [{"role": "user"}]}), ("stop", {"stop": [5]}), ("seed", {"seed": "x"})]
        for param, change in cases:
            with self.subTest(change=change):
                with self.assertRaises(openai.BadRequestError) as caught:
                    client.chat.completions.create(**GREEDY | {"messages": QUESTION} | change)
                self.assertEqual(caught.exception.type, "invalid_request_error")
                self.assertTrue((caught.exception.param or "").startswith(param), caught.exception.param)

    def test_too_long(self):
        length = getattr(client.models.retrieve(MODEL), "max_model_len", None)
        if length is None or length > 100_000:
            self.skipTest("the model's context is not small")
        with self.assertRaises(openai.BadRequestError) as caught:
            client.completions.create(**GREEDY, prompt=[40] * (length + 1))
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    @unittest.skipUnless(KEY, "the server asks for no key")
    def test_key(self):
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(**settings("wrong")).models.list()
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(**settings("wrong")).chat.completions.create(**GREEDY, messages=QUESTION)


class Cancel(unittest.TestCase):
    def wait_until_idle(self):
        """Nobody listens any more: nothing may go on being computed."""
        if gauge("vllm:num_requests_running") is None:
            return
        end = time.monotonic() + 10
        while gauge("vllm:num_requests_running") + gauge("vllm:num_requests_waiting") > 0:
            self.assertLess(time.monotonic(), end, "requests go on after their clients left")
            time.sleep(0.1)

    def test_closed_stream(self):
        before = story()
        with client.completions.create(**LONG) as stream:
            for _, chunk in zip(range(3), stream):
                self.assertEqual(len(chunk.choices), 1)
        self.wait_until_idle()
        self.assertEqual(story(), before)

    def test_timeout_frees_the_request(self):
        with self.assertRaises(openai.APITimeoutError):
            client.with_options(timeout=0.2).completions.create(**LONG | {"stream": False})
        self.wait_until_idle()
        self.assertTrue(story())

    def test_cancelled_tasks(self):
        async def leave():
            async with openai.AsyncOpenAI(**settings()) as other:
                async def read():
                    async for _ in await other.completions.create(**LONG):
                        pass
                tasks = [asyncio.create_task(read()) for _ in range(8)]
                await asyncio.sleep(0.3)
                for task in tasks:
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                self.assertEqual({type(r) for r in results}, {asyncio.CancelledError})
        asyncio.run(leave())
        self.wait_until_idle()
        self.assertTrue(story())


if __name__ == "__main__":
    unittest.main()
