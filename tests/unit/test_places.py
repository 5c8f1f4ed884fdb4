"""The rule *Fair places* (agent.md 3): who gives way to whom (srdma/agent/places.py)."""

from __future__ import annotations

import pytest

from srdma.agent.places import Full, Limit, Limits, Places

MOST = 4


def limits(*holders: str, most: int = MOST) -> Limits:
    return {"": Limit(most, holders)}


def filled(*each: str) -> Places[int]:
    """Places that 0, 1, ... have; each: the holders of one, without spaces between them."""
    places = Places[int]()
    for one, holders in enumerate(each):
        assert places.make_room(limits(*holders)) == []
        places.add(one, limits(*holders))
    return places


@pytest.mark.parametrize(
    ("each", "new", "gone"),
    [
        ("aaab", "c", 0),  # the oldest of the holder that has the most
        ("baaa", "c", 1),
        ("abab", "c", 0),  # of two with as many, the one that came first
        ("aaab", "b", 0),  # the new one has two fewer
        ("aabb", "b", None),  # as many
        ("aabb", "a", None),
        ("aabc", "b", None),  # one fewer: "a" could come again and displace it
        ("aaaa", "a", None),
        ("abcd", "e", None),  # one each
    ],
)
def test_who_gives_way(each: str, new: str, gone: int | None) -> None:
    places = filled(*each)
    if gone is None:
        with pytest.raises(Full) as full:
            places.make_room(limits(new))
        assert full.value.at == ""
    else:
        assert places.make_room(limits(new)) == [gone]


@pytest.mark.parametrize(
    ("each", "new", "gone"),
    [
        ("aG bG cG dG", "eH", 0),  # one GID has all places
        ("aG bG cG dG", "eG", None),  # the same GID, and one place for each identity
        ("aG bG cG dG", "aG", None),
        ("aG bG bG bG", "cG", 1),  # the same GID, and one identity has more
        ("aG bH bH bH", "cG", 1),
        ("aG aG bH bH", "cG", 0),  # its own GID has as many as the other one
        ("aG aG aG bH", "aH", 0),  # the same identity
        ("aG aG aH aH", "aI", 0),
        ("aG aH aI aJ", "bK", 0),  # the identity has all, and each GID one
        ("aG aG bG bH", "aH", 0),
        ("aG aG bH bH", "bG", None),
        ("aG aG bH bH", "bK", 2),  # its identity has as many as "a"
    ],
)
def test_holders_of_two_kinds(each: str, new: str, gone: int | None) -> None:
    places = filled(*each.split())
    if gone is None:
        with pytest.raises(Full):
            places.make_room(limits(*new))
    else:
        assert places.make_room(limits(*new)) == [gone]


def test_no_two_displace_each_other() -> None:
    """A peer that comes again after it gave way is refused, once the shares are equal."""
    places = filled("a", "a", "a", "a")
    for number, new in enumerate("bbb", MOST):
        try:
            for former in places.make_room(limits(new)):
                places.remove(former, limits("a"))
        except Full:
            break
        places.add(number, limits(new))
    for new in "ab":
        with pytest.raises(Full):
            places.make_room(limits(new))


def test_one_that_keeps_its_place() -> None:
    places = filled("a", "a", "a", "b")
    for one in range(2):
        places.fix(one, limits("a"))
    with pytest.raises(Full):
        places.make_room(limits("c"))
    places.fix(2, limits("a"))
    places.remove(0, limits("a"))
    assert places.make_room(limits("c")) == []


def test_places_without_holders() -> None:
    """None gives way, and other limits remain."""
    places = Places[int]()
    both = {"all": Limit(2, ("a",)), "user": Limit(1)}
    places.add(0, both)
    with pytest.raises(Full) as full:
        places.make_room(both)
    assert full.value.at == "user"
    places.remove(0, both)
    assert places.make_room(both) == [] and not places._crowds
    with pytest.raises(Full):
        places.make_room(limits("a", most=0))


def test_one_makes_room_under_two_limits() -> None:
    """The one that gives way under the first limit frees a place under the second one as well."""
    places = Places[int]()
    here = {"all": Limit(2, ("a",)), "G": Limit(2, ("a",))}
    for one in range(2):
        places.add(one, here)
    assert places.make_room({"all": Limit(2, ("b",)), "G": Limit(2, ("b",))}) == [0]
    assert places.make_room({"all": Limit(2, ("b",))}) == [0]
    assert places.count("all") == 2 and places.count("none") == 0
