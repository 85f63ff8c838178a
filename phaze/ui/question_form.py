"""The question of `dse run` as a form: a field for every option of its model, checked by what the command reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from phaze.errors import InputError, PhazeError
from phaze.inputs.option_texts import ON, flag, read_texts, words
from phaze.inputs.options.option_model import Effect, Option, Options, Packaged
from phaze.inputs.options.search_options import RunOptions
from phaze.inputs.options.serving_options import PlanServingOptions
from phaze.report.html_markup import Html, details, join, tag

_FIRST = ("workload", "power", "area", "devices", "objective", "time_limit")
"""Options that stand open; the others are folded away."""

_CATALOGUES = {
    Packaged.ARCHS: "ARCHITECTURE",
    Packaged.SPACES: "SPACE",
    Packaged.NETWORKS: "NETWORK",
    Packaged.FRAMEWORKS: "FRAMEWORK",
    Packaged.PLANS: "PLAN_SPACE",
    Packaged.FAILURES: "FAILURE",
    Packaged.ENGINES: "ENGINE",
}


def asked(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts that are options of a question. Raises InputError for others."""
    known = _fields()
    for name in texts:
        if name not in known:
            raise InputError(f"{name!r} is not an option of a question")
    return dict(texts)


def checked(texts: Mapping[str, str]) -> dict[str, Any]:
    """What `dse run` would say to a question: its command, and the error with the option that it is about."""
    from phaze.inputs.run_inputs import make_request, make_service

    told = asked(texts)
    answer: dict[str, Any] = {"command": ["dse", "run", *words(RunOptions, told)], "error": "", "field": ""}
    try:
        options = read_texts(RunOptions, told)
        make_request(options) if options.serve is None else make_service(options)
    except PhazeError as error:
        answer |= {"error": " ".join(str(error).split()), "field": _about(str(error))}
    return answer


def _about(sentence: str) -> str:
    """The option that a sentence begins with or speaks of first; empty where it is about none."""
    places = {
        name: sentence.find(flag(name, option))
        for name, option in _fields().items()
        if flag(name, option) in sentence.replace(",", " ").replace(":", " ").split()
    }
    if not places:
        return "workload" if "workload" in sentence else ""
    return min(places, key=lambda name: places[name])


def _fields() -> dict[str, Option]:
    """Options of a question by name; where the answer goes is not asked here."""
    return {
        name: option
        for name, (_, option) in RunOptions.described().items()
        if option.effect is not Effect.NOTHING
    }


SERVING_FIELDS = ("devices", "prompt", "output_tokens", "max_ttft", "max_tpot", "rate")
"""Options of `dse plan serving` that are asked beside a design."""


def serving_fields() -> Html:
    """Their fields."""
    known = PlanServingOptions.described()
    fields = (_field(PlanServingOptions, name, known[name][1]) for name in SERVING_FIELDS)
    return tag("div", *fields, look="fields")


def question_form() -> Html:
    """The form with all its fields, the first ones open."""
    known = _fields()
    first = tag("div", *(_field(RunOptions, name, known[name]) for name in _FIRST), look="fields")
    groups = [
        details(legend, tag("div", *(_field(RunOptions, name, known[name]) for name in names), look="fields"))
        for legend, names in _groups(known)
    ]
    command = tag("p", tag("code", "", id="command"), look="command")
    error = tag("p", "", id="error", role="alert")
    button = tag("button", "Search", type="submit", id="ask")
    return tag(
        "form", first, *groups, command, error, tag("p", button), id="question", novalidate="novalidate"
    )


def _groups(known: Mapping[str, Option]) -> Iterator[tuple[str, Sequence[str]]]:
    """Options of each part of the model that are not among the first, under the sentence of that part."""
    told = set(_FIRST)
    for part in RunOptions.__mro__:
        own = [name for name in getattr(part, "__annotations__", {}) if name in known and name not in told]
        if own and issubclass(part, Options):
            told |= set(own)
            told_of = "Search and objective." if part is RunOptions else (part.__doc__ or "").strip()
            yield told_of.partition("\n")[0].removesuffix(".").replace("`", ""), own


def _field(model: type[Options], name: str, option: Option) -> Html:
    """A label, the input with what it may be, and the help."""
    told = model.described()[name][0]
    label = tag("label", name.replace("_", " "), for_=f"option-{name}")
    default = model.defaults().get(name)
    described = {
        "id": f"option-{name}",
        "name_": name,
        "aria_describedby": f"{name}-help",
        "autocomplete": "off",
    }
    if str(told.type).startswith("bool"):
        control = tag("input", type="checkbox", value=ON, **described)
    else:
        offers = _offers(option)
        control = tag(
            "input",
            type="text",
            placeholder=None if default is None else str(default),
            list=f"{name}-list" if offers else None,
            spellcheck="false",
            **described,
        )
        if offers:
            listed = tag("datalist", *(tag("option", value=one) for one in offers), id=f"{name}-list")
            control = join([control, listed], "")
    help_ = tag("small", option.help, id=f"{name}-help")
    return tag("div", label, control, help_, look="field")


def _offers(option: Option) -> Sequence[str]:
    """Names that a field offers."""
    if not isinstance(option.offers, Packaged):
        return option.offers
    if option.offers is Packaged.WORKLOADS:
        from phaze.workload.workload_library import WORKLOADS

        return list(WORKLOADS.all())
    from phaze.hardware.catalogue import Catalogue, registry

    return list(registry(Catalogue[_CATALOGUES[option.offers]]).all())
