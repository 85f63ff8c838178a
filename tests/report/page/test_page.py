"""The report as a file: whole, escaped, and of nothing but itself."""

from __future__ import annotations

import json
import re

import pytest
from report_cases import played

from phaze.explore.documents.explanation_document import Sensitivity
from phaze.report.figures.report_contents import Contents
from phaze.report.figures.winner_floorplan import Rect, floorplan, treemap
from phaze.report.html_markup import data, tag, text
from phaze.report.page.answer_pages import run_page
from phaze.testing.figure_contract import HOSTILE, Markup, hostile


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """A function from a document to the contents of its report, with one workload played again."""
    result, plan = played(tmp_path_factory.mktemp("page"), pipeline=(4,), microbatches=(1,), tensor=(1,))

    def of(document):
        name, own = next(iter(document.best.workloads.items()))
        placed = own.placement.model_copy(update={"plan": result.placement.plan})
        workloads = {**document.best.workloads, name: own.model_copy(update={"placement": placed})}
        best = document.best.model_copy(update={"workloads": workloads})
        document = document.model_copy(update={"best": best})
        sensitive = Sensitivity(
            parameter="clock_hz",
            description=name,
            throughput_less_samples_per_s=9.0,
            throughput_more_samples_per_s=11.0,
            step=0.1,
            gain=0.1,
            elasticity=1.0,
        )
        designs = [{"id": p.id, **p.model_dump(exclude={"id", "architecture"})} for p in document.frontier]
        designs.append({"id": f"other {name}", "tdp_w": 500.0, "throughput_samples_per_s": 5.0})
        return Contents(name, document, designs, None, {name: [sensitive]}, plans={name: plan})

    return of


def test_names_from_files_stay_names(document, contents):
    plain, evil = (Markup(run_page(contents(d))) for d in (document, hostile(document)))
    assert evil.names.count("script") == plain.names.count("script")
    assert "img" not in evil.names
    assert evil.handlers == []
    shown = HOSTILE.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    assert "".join(evil.texts).count(shown) > 20


def test_the_page_is_whole(document, contents):
    source = run_page(contents(document))
    found = Markup(source)
    assert len(found.values("id")) == len(set(found.values("id")))
    inside = [link[1:] for link in found.values("href", "src") if link.startswith("#")]
    assert set(inside) <= set(found.values("id"))
    assert inside == [link[1:] for link in found.values("href", "src")]  # nothing from elsewhere
    for anchor in ("architecture", "frontier", "iteration", "operators", "roofline", "memory", "sensitivity"):
        assert anchor in found.values("id")
    assert "default-src 'none'" in source
    assert len(source.encode()) < 3_000_000
    assert "None" not in "".join(found.texts)


def test_what_cannot_be_played_again_is_left_out_with_a_reason(document):
    found = Markup(run_page(Contents("run", document, left_out="tiny.yaml has changed")))
    assert not {"iteration", "operators", "roofline", "memory", "sensitivity"} & set(found.values("id"))
    assert "tiny.yaml has changed" in "".join(found.texts)


def test_the_same_run_gives_the_same_page(document, contents):
    assert run_page(contents(document)) == run_page(contents(document))


def test_the_funnel_ends_with_what_was_evaluated(document, contents):
    certificate = document.certificate
    assert certificate.space_size == certificate.over_budget + certificate.pruned + certificate.evaluated
    words = " ".join(Markup(run_page(contents(document))).texts)
    for left in (2_000_000, 500_000, 100_000, 100):
        assert f"{left:,}" in words


def test_components_are_drawn_to_scale(document):
    drawn = floorplan(document.best)
    areas = {}
    for block in re.findall(r'<rect class="block[^>]*><title>[^<]*', drawn):
        width, height = (float(re.search(rf'{side}="([\d.]+)"', block)[1]) for side in ("width", "height"))
        name = block.partition("<title>")[2].partition(":")[0]
        areas[name] = areas.get(name, 0.0) + width * height
    assert areas["tensor cores"] == pytest.approx(300.0, rel=1e-3)
    assert sum(areas.values()) == pytest.approx(document.best.area_mm2, rel=1e-3)


@pytest.mark.parametrize("areas", [[5.0], [6, 6, 4, 3, 2, 2, 1], [1.0] * 64, [1000.0, 1.0, 1e-3]])
def test_a_treemap_fills_its_room_with_the_given_areas(areas):
    room = Rect(1.0, 2.0, 6.0, 4.0)
    placed = treemap(areas, room)
    assert [r.area for r in placed] == pytest.approx([a * room.area / sum(areas) for a in areas])
    assert min(r.x for r in placed) == 1.0
    assert max(r.x + r.width for r in placed) == pytest.approx(7.0)
    assert max(r.y + r.height for r in placed) == pytest.approx(6.0)


def test_markup_escapes_text_and_attributes():
    assert tag("p", "<b>", title='"') == '<p title="&quot;">&lt;b&gt;</p>'
    assert text("\x00\ud800") == "\N{REPLACEMENT CHARACTER}" * 2
    hidden = data("x", {"a": "</script><!--"})
    assert "</script" not in hidden.removesuffix("</script>")
    assert json.loads(re.search(r">(.*)</script>", hidden)[1]) == {"a": "</script><!--"}
