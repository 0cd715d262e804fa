from __future__ import annotations

from xml.etree import ElementTree

from classifier.plot import svg, terminal

CURVES = {"rising": [0.0, 0.5, 1.0], "flat <b>": [0.0, 0.0, 2.0]}


def test_the_terminal_shows_each_curve_where_it_is() -> None:
    lines = terminal(CURVES, width=21, height=11).splitlines()
    top, middle = lines[0].split("|")[1], lines[5].split("|")[1]
    assert top.rstrip().endswith("*")
    assert middle[10] == "*"
    assert lines[10].split("|")[1][5] == "o"
    assert "* rising" in lines[-1]
    assert all(len(line) <= 40 for line in lines[:11])


def test_svg_is_well_formed_and_within_its_frame() -> None:
    root = ElementTree.fromstring(svg(CURVES, "A & B"))
    lines = [node for node in root if node.tag.endswith("polyline")]
    assert len(lines) == 2
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert all(60 <= x <= 580 and 40 <= y <= 360 for x, y in points)
    first = [tuple(map(float, point.split(","))) for point in lines[0].attrib["points"].split()]
    assert first[0] == (60, 360)
    assert first[-1] == (580, 40)
    texts = [node.text for node in root if node.tag.endswith("text")]
    assert "A & B" in texts
    assert "flat <b>" in texts
