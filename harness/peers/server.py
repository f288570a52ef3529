# /// script
# dependencies = ["httpx>=0.27", "tokenizers>=0.20"]
# ///
"""A running server with OpenAI's interface (llama-server, vLLM, …), asked for the answers of a config's requests, which it streams.

Prompts go to /completions as token ids, so that they have the tokens that kvlab's own cells read. Answers are as long as the request
says: llama-server and vLLM know `ignore_eos`.
"""

import asyncio
import json
import time

NEEDS = ["httpx", "tokenizers"]
PATIENCE_S = 600.0  # between two pieces of an answer


class Engine:
    """Answers requests of kvlab: `url`, to which /completions is added."""

    def about(self, request):
        """The model that the server names."""
        import httpx

        try:
            models = httpx.get(request["url"] + "/models", timeout=10).raise_for_status().json()
            return {"model": models["data"][0]["id"]}
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as why:
            raise Unsupported(f"no server answers at {request['url']}/models: {why}") from None  # noqa: F821  # serve.py gives it

    def serve(self, request):
        return asyncio.run(Load(request).run())


class Load:
    """Requests as a load: at their arrivals, or by `users` who each send the next when they have their answer."""

    def __init__(self, request):
        self.of, self.requests = request, request["requests"]
        self.tokenizer = None
        self.before, last = {}, {}  # by request, the one that its conversation continues
        for at, wanted in enumerate(self.requests):
            if wanted["session"] >= 0:
                if wanted["session"] in last:
                    self.before[at] = last[wanted["session"]]
                last[wanted["session"]] = at

    async def run(self):
        import httpx

        self.said = [asyncio.get_running_loop().create_future() for _ in self.requests]  # ids of prompt and answer
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(limits=limits, timeout=PATIENCE_S) as self.client:
            self.start = time.perf_counter()
            if self.of["users"] > 0:
                waiting = iter(range(len(self.requests)))
                answers = [answer for some in await asyncio.gather(*(self.user(waiting) for _ in range(self.of["users"]))) for answer in some]
            else:
                answers = await asyncio.gather(*(self.arriving(at) for at in range(len(self.requests))))
        return {"answers": [answer for _, answer in sorted(answers, key=lambda pair: pair[0])]}

    def now(self):
        return time.perf_counter() - self.start

    async def user(self, waiting):
        return [(at, await self.answer(at)) for at in waiting]

    async def arriving(self, at):
        arrival = self.requests[at]["at"]
        await asyncio.sleep(arrival - self.now())
        return at, await self.answer(at, None if at in self.before else arrival)

    async def answer(self, at, arrival=None):
        """One request's times in seconds after the start, and what the server says of it. `arrival`: when it came, if not now."""
        prompt = await self.prompt(at)
        answer = {"sent_s": self.now() if arrival is None else arrival, "pieces": 0, "text": "", "error": ""}
        try:
            await self.stream(prompt, self.requests[at]["output"], answer)
            if not answer["pieces"] and not answer["error"]:
                answer["error"] = "it ended without a token"
        except Exception as why:  # of the connection, or an answer in another form: ends one request
            answer["error"] = f"{type(why).__name__}: {why}"
        finally:
            self.said[at].set_result(prompt + self.ids_of(at, answer["text"]))
        del answer["text"]
        return answer

    async def prompt(self, at):
        """The drawn prompt. A conversation's begins with its last prompt and the answer that came."""
        drawn = self.requests[at]["prompt"]
        said = await self.said[self.before[at]] if at in self.before else []
        return said + drawn[len(said) :] if len(said) < len(drawn) else drawn

    def ids_of(self, at, text):
        if at not in self.before.values() or not self.of["tokenizer"]:
            return []
        from tokenizers import Tokenizer

        self.tokenizer = self.tokenizer or Tokenizer.from_file(self.of["tokenizer"])
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    async def stream(self, prompt, output, answer):
        body = dict(model=self.of["model"], prompt=prompt, max_tokens=output, temperature=0, stream=True, ignore_eos=True,
                    stream_options={"include_usage": True}, cache_prompt=self.of["sharing"])  # fmt: skip
        async with self.client.stream("POST", self.of["url"] + "/completions", json=body) as response:
            if response.status_code != 200:
                said = " ".join((await response.aread()).decode(errors="replace").split())
                answer["error"] = f"HTTP {response.status_code}: {said[:200]}"
                return
            async for line in response.aiter_lines():
                if line.startswith("data:") and line[5:].strip() != "[DONE]":
                    self.note(json.loads(line[5:]), answer)

    def note(self, event, answer):
        if "error" in event:
            answer["error"] = str(event["error"])[:200]
        if text := "".join(choice.get("text") or "" for choice in event.get("choices") or []):
            answer.setdefault("first_s", self.now())
            answer.update(last_s=self.now(), pieces=answer["pieces"] + 1, text=answer["text"] + text)
        usage, timings = event.get("usage") or {}, event.get("timings") or {}
        for name, value in (("tokens", usage.get("completion_tokens")), ("prompt_tokens", usage.get("prompt_tokens")),
                            ("cached", (usage.get("prompt_tokens_details") or {}).get("cached_tokens", timings.get("cache_n")))):  # fmt: skip
            if value is not None:
                answer[name] = value
