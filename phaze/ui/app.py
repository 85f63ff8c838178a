"""The pages and commands of `dse ui` by address."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from phaze.errors import InputError, PhazeError
from phaze.inputs.option_texts import read_texts, words
from phaze.inputs.options.search_options import RunOptions
from phaze.inputs.options.serving_options import PlanServingOptions
from phaze.quantity import parse_time
from phaze.runs.document_formats import load_answer
from phaze.ui import pages
from phaze.ui.child_runs import ChildRuns
from phaze.ui.question_form import SERVING_FIELDS, asked, checked, question_form
from phaze.ui.runs_folder import RunsFolder

Answer = Callable[[Request], Awaitable[Response]]
_MOST_BYTES = 100_000


def _told(answer: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    """The same, where an error of ours is a page, or JSON where JSON was asked, with one sentence."""

    @wraps(answer)
    async def told(self: LocalPage, request: Request) -> Response:
        try:
            return await answer(self, request)
        except PhazeError as error:
            sentence = " ".join(str(error).split())
            if request.method == "POST":
                return JSONResponse({"error": sentence}, 400)
            return HTMLResponse(pages.message_page("Not here", sentence), 404)

    return told


@dataclass(frozen=True)
class LocalPage:
    """A folder of runs and the commands at work in it."""

    folder: RunsFolder
    commands: ChildRuns = field(default_factory=ChildRuns)

    def app(self) -> Starlette:
        """The application; who may talk to it is for `LocalAccess` to say."""
        run = "/runs/{run}"
        routes = [
            Route("/", self.runs),
            Route("/ask", self.ask),
            Route("/check", self.check, methods=["POST"]),
            Route("/start", self.start, methods=["POST"]),
            Route("/together", self.together),
            Route(run, self.run),
            Route(f"{run}/report", self.report),
            Route(f"{run}/report", self.start_report, methods=["POST"]),
            Route(f"{run}/plan", self.plan, methods=["POST"]),
            Route(f"{run}/serving", self.serving, methods=["POST"]),
            Route(f"{run}/architecture", self.architecture),
            Route(f"{run}/files/{{file}}", self.file),
            Route("/at-work/{number}", self.at_work),
            Route("/at-work/{number}/state", self.state),
            Route("/at-work/{number}/stop", self.stop, methods=["POST"]),
            Route("/static/{name}", self.static),
        ]
        return Starlette(routes=routes)

    @_told
    async def runs(self, request: Request) -> Response:
        """The list."""
        found = await run_in_threadpool(self.folder.runs)
        return HTMLResponse(pages.runs_page(self.folder.path, found))

    @_told
    async def run(self, request: Request) -> Response:
        """One run; answers of other verbs than `dse run` are told by their report."""
        return await run_in_threadpool(self._run, request.path_params["run"])

    def _run(self, name: str) -> Response:
        from phaze.explore.documents.result_document import ResultDocument
        from phaze.runs.run_directory import DESIGNS, load_designs

        place = self.folder.run(name)
        document = load_answer(place)
        if not isinstance(document, ResultDocument):
            return RedirectResponse(f"{pages.run_address(name)}/report", 303)
        designs = load_designs(place) if (place / DESIGNS).is_file() else []
        return HTMLResponse(pages.run_page(name, document, designs, pages.files_of(place)))

    @_told
    async def report(self, request: Request) -> Response:
        """The report where there is one of this answer; else the command that writes it."""
        name = request.path_params["run"]
        if (file := self._report(name)) is not None:
            return HTMLResponse(file.read_text(encoding="utf-8"), headers=_OF_REPORTS)
        return RedirectResponse(f"/at-work/{self._start_report(name)}", 303)

    @_told
    async def start_report(self, request: Request) -> Response:
        """Where to go for the report."""
        name = request.path_params["run"]
        if self._report(name) is not None:
            return JSONResponse({"go": f"{pages.run_address(name)}/report"})
        return JSONResponse({"go": f"/at-work/{self._start_report(name)}"})

    def _report(self, name: str) -> Path | None:
        """The report of a run, if it is no older than the answer."""
        place = self.folder.run(name)
        file, answer = place / "report.html", place / "result.json"
        fresh = file.is_file() and answer.is_file() and file.stat().st_mtime >= answer.stat().st_mtime
        return self.folder.file(name, "report.html") if fresh else None

    def _start_report(self, name: str) -> str:
        place = self.folder.run(name)
        load_answer(place)  # refused here, not in a child
        target = f"{pages.run_address(name)}/report"
        return self.commands.start(["report", str(place), "--quiet"], place, target)

    @_told
    async def together(self, request: Request) -> Response:
        """Several runs side by side."""
        return await run_in_threadpool(self._together, request.query_params.getlist("run"))

    def _together(self, names: list[str]) -> Response:
        from phaze.api.at_hand import run_at_hand
        from phaze.api.drawn_runs import runs_together

        if len(names) < 2:
            raise InputError("choose two runs or more")
        content = runs_together([run_at_hand(self.folder.run(name)) for name in names])
        return HTMLResponse(content, headers=_OF_REPORTS)

    @_told
    async def ask(self, request: Request) -> Response:
        """The form."""
        return HTMLResponse(pages.ask_page(question_form()))

    @_told
    async def check(self, request: Request) -> Response:
        """What the command would say to a question."""
        texts = await _texts(request)
        return JSONResponse(await run_in_threadpool(checked, texts))

    @_told
    async def start(self, request: Request) -> Response:
        """Start a search; where to go to see it."""
        texts = asked(await _texts(request))
        options = read_texts(RunOptions, texts)
        name = self._free("-".join(map(str, options.workload)))
        place = self.folder.path / name
        command = ["run", *words(RunOptions, texts), "--out", str(place), "--quiet"]
        limit_s = parse_time(options.time_limit, "--time-limit")
        number = self.commands.start(command, place, pages.run_address(name), limit_s)
        return JSONResponse({"go": f"/at-work/{number}"})

    @_told
    async def plan(self, request: Request) -> Response:
        """Plan a training on a design of a run."""
        design = (await _texts(request)).get("design", "")
        return JSONResponse({"go": f"/at-work/{self._plan(request.path_params['run'], design)}"})

    @_told
    async def serving(self, request: Request) -> Response:
        """Plan the serving on a design of a run."""
        texts = await _texts(request)
        design = texts.pop("design", "")
        return JSONResponse({"go": f"/at-work/{self._serve(request.path_params['run'], design, texts)}"})

    def _plan(self, run: str, design: str) -> str:
        """The number of the command that plans the training of the run's first workload, as the run was asked."""
        place, told = self.folder.run(run), self._request_of(run, design)
        workload = str(told["workloads"][0])
        command = ["plan", "--arch", f"{place}:{design}", "--workload", workload]
        for option in ("devices", "global_batch", "network", "framework", "plans", "rung"):
            if told.get(option) is not None:
                command += [f"--{option.replace('_', '-')}", str(told[option])]
        return self._started(f"plan-{workload}", command)

    def _serve(self, run: str, design: str, texts: Mapping[str, str]) -> str:
        """The number of the command that plans the serving under some options."""
        if others := texts.keys() - set(SERVING_FIELDS):
            raise InputError(f"{', '.join(sorted(others))} is not an option of serving here")
        place, told = self.folder.run(run), self._request_of(run, design)
        workload = str(told["workloads"][0])
        asked_for = {**texts, "arch": f"{place}:{design}", "workload": workload}
        read_texts(PlanServingOptions, asked_for)
        return self._started(
            f"serving-{workload}", ["plan", "serving", *words(PlanServingOptions, asked_for)]
        )

    def _started(self, name: str, command: Sequence[str]) -> str:
        """A command that keeps its answer in a folder of its own, and leads to the report of it."""
        free = self._free(name)
        out = self.folder.path / free
        return self.commands.start([*command, "--out", str(out)], out, f"{pages.run_address(free)}/report")

    def _request_of(self, run: str, design: str) -> Mapping[str, Any]:
        """What was asked of a run that has such a design."""
        from phaze.explore.documents.result_document import ResultDocument

        document = load_answer(self.folder.run(run))
        if not isinstance(document, ResultDocument):
            raise InputError(f"{run} was not made by dse run")
        if design not in {document.best.id, *(point.id for point in document.frontier)}:
            raise InputError(f"{run} has no design {design!r} on its frontier")
        result = next(iter(document.best.workloads.values()))
        told = {**document.request, "devices": result.devices}
        if (manifest := document.manifest.asked) is not None and manifest.verb == "run":
            named = ("network", "framework", "plans")  # as typed: a file is found again by its path alone
            told |= {name: manifest.options[name] for name in named if name in manifest.options}
            told["workloads"] = manifest.options["workload"]
        return told

    @_told
    async def architecture(self, request: Request) -> Response:
        """A design of the frontier as an architecture file."""
        return await run_in_threadpool(
            self._architecture, request.path_params["run"], request.query_params.get("design", "")
        )

    def _architecture(self, run: str, design: str) -> Response:
        import yaml

        from phaze.inputs.architecture_names import find_architecture

        self._request_of(run, design)
        found = find_architecture(f"{self.folder.run(run)}:{design}")
        content = {"schema_version": 1, "name": design, "fields": dict(found.fields)}
        named = {"content-disposition": f"attachment; filename*=UTF-8''{quote(design, safe='')}.yaml"}
        return Response(
            yaml.safe_dump(content, sort_keys=False), media_type="application/yaml", headers=named
        )

    @_told
    async def file(self, request: Request) -> Response:
        """A file of a run, to keep."""
        name = request.path_params["file"]
        return FileResponse(self.folder.file(request.path_params["run"], name), filename=name)

    @_told
    async def at_work(self, request: Request) -> Response:
        """A command at work."""
        number = request.path_params["number"]
        return HTMLResponse(pages.at_work_page(number, self.commands.run(number).words))

    @_told
    async def state(self, request: Request) -> Response:
        """How far it is."""
        return JSONResponse(self.commands.run(request.path_params["number"]).state)

    @_told
    async def stop(self, request: Request) -> Response:
        """Stop it: with the best known; asked a second time, at once."""
        self.commands.run(request.path_params["number"]).stop()
        return JSONResponse({})

    async def static(self, request: Request) -> Response:
        """Style and script."""
        try:
            content, kind = pages.static(request.path_params["name"])
        except KeyError:
            return Response(status_code=404)
        return Response(content, media_type=kind)

    def _free(self, name: str) -> str:
        taken = [run.out.name for run in self.commands.at_work.values()]
        return self.folder.free(name, taken)


_OF_REPORTS = {"content-security-policy": "frame-ancestors 'none'"}
"""A report holds its own style and script, and a policy of its own that lets nothing else in."""


async def _texts(request: Request) -> dict[str, str]:
    """A JSON object of texts. Raises InputError for anything else."""
    if int(request.headers.get("content-length") or 0) > _MOST_BYTES:
        raise InputError("the question is too long")
    try:
        content = await request.json()
    except ValueError as error:
        raise InputError("the request is not JSON") from error
    if not isinstance(content, dict) or not all(isinstance(v, str) for v in content.values()):
        raise InputError("the request is not a JSON object of texts")
    return content
