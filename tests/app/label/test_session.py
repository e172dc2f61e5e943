import base64
import json
import threading

import numpy as np
import pytest

from graphuq import GraphClassifier
from graphuq.app.label import adviser
from graphuq.app.label import session as sessions
from graphuq.app.label.session import MAX_CLASSES, MAX_NAME, checked_name
from graphuq.app.label.store import Refused, Tally
from graphuq.posterior import kept
from tests.app.label.conftest import NAMES, N, blobs

TRUTH = [NAMES[k] for k in blobs()[1]]
GIVEN = {0: "ant", 1: "bee", 2: "cat"}


def say(session, row, name=None, tab="me", **more):
    session.do(f"{tab} {row} {len(session.store.events())}", tab, "answer", row, name or TRUTH[row], **more)


def test_answers_move_the_map_at_once_and_the_question(make):
    session = make(GIVEN)
    assert session.adviser.settled()
    before = session.state()
    row = session.question("me")["row"]
    assert row not in GIVEN
    say(session, row)
    after = session.state()
    assert after["version"] > before["version"]
    assert after["map"]["sure"] != before["map"]["sure"]
    assert after["labels"] == 4
    assert [star[0] for star in after["stars"]] == [*GIVEN, row]
    assert session.question("me")["row"] != row
    json.dumps(after, allow_nan=False)
    json.dumps(session.layout(), allow_nan=False)


def test_the_question_says_what_the_model_believes_and_what_is_near(make):
    session = make(GIVEN)
    assert session.adviser.settled()
    found = session.question("me")
    classifier = session.adviser.now.classifier
    p = classifier.posterior_.probability([found["row"]])[0]
    assert [k for k, _ in found["p"]] == np.argsort(-p, kind="stable").tolist()
    np.testing.assert_allclose([x for _, x in found["p"]], np.sort(p)[::-1], atol=1e-6)
    X, _ = blobs()
    distance = np.linalg.norm(X[list(GIVEN)] - X[found["row"]], axis=1)
    assert [each["row"] for each in found["neighbors"]] == [list(GIVEN)[i] for i in np.argsort(distance)]
    assert [session.classes()[each["class"]] for each in found["neighbors"]] == [
        GIVEN[each["row"]] for each in found["neighbors"]
    ]


def test_without_labels_the_questions_are_spread_over_the_graph(make):
    session = make()
    assert session.classes() == []
    asked = []
    for name in NAMES:
        session.do(f"add {name}", "me", "add", name=name)
    for _ in range(6):
        assert session.adviser.settled()
        asked.append(session.question("me")["row"])
        session.do(f"aside {asked[-1]}", "me", "unsure", asked[-1])
    assert {TRUTH[row] for row in asked} == set(NAMES)  # every blob is reached
    assert session.state()["map"] is None
    assert "No row has a class yet" in session.state()["advice"][0]


def test_questions_before_the_first_predictions_do_not_follow_the_table(make):
    candidates = list(make()._candidates(()))
    assert sorted(candidates) == list(range(len(TRUTH)))
    assert {TRUTH[row] for row in np.argsort(TRUTH)[candidates[:10]]} == set(NAMES)  # of a table sorted by class


def test_one_class_is_not_enough_and_the_second_one_is(make):
    session = make({0: "ant"})
    assert session.adviser.settled()
    assert session.adviser.now.classifier is None
    assert "one class, 'ant'" in session.state()["advice"][0]
    assert "predictions need labels of two classes" in session.state()["advice"][0]
    session.do("add", "me", "add", name="bee")
    say(session, 1)
    assert session.adviser.settled()
    assert session.adviser.now.classifier.classes_.tolist() == ["ant", "bee"]
    assert session.state()["map"] is not None


def test_a_class_that_comes_and_goes(make):
    session = make({0: "ant", 1: "bee"})
    assert session.adviser.settled()
    session.do("add", "me", "add", name="cat")
    say(session, 2)
    assert session.adviser.settled()
    assert session.adviser.now.classifier.classes_.tolist() == list(NAMES)
    kinds = base64.b64decode(session.state()["map"]["class"])
    assert kinds[2] == 2
    session.do("remove", "me", "remove", name="cat")
    assert session.adviser.settled()
    assert session.adviser.now.classifier.classes_.tolist() == ["ant", "bee"]
    assert 2 not in session.labels()
    with pytest.raises(Refused, match="class of the table"):
        session.do("other", "me", "remove", name="ant")


def test_undo_removes_a_class_that_the_page_added_and_no_row_has(make):
    session = make(GIVEN)
    session.do("shell", "shell", "add", name="dog")  # as --class does
    for name, rows in (("catt", (5,)), ("elk", (6, 7)), ("dog", (8,))):
        if name != "dog":
            session.do(f"add {name}", "me", "add", name=name)
        for row in rows:
            say(session, row, name)
    say(session, 9, "elk", tab="you")
    undo = [f"undo {k}" for k in range(4)]
    session.do(undo[0], "me", "undo")
    assert session.classes() == [*NAMES, "dog", "catt", "elk"]  # dog was not added by this page
    session.do(undo[1], "me", "undo")
    session.do(undo[2], "me", "undo")
    assert "elk" in session.classes()  # another page chose it
    session.do(undo[3], "me", "undo")
    assert session.classes() == [*NAMES, "dog", "elk"]
    session.do("add again", "me", "add", name="catt")
    session.do(undo[3], "me", "undo")  # sent again: counts once
    assert "catt" in session.classes()
    session = make(GIVEN)
    assert session.classes() == [*NAMES, "dog", "elk", "catt"]
    assert session.labels() == {**GIVEN, 9: "elk"}


def test_a_class_removed_while_it_is_answered(make):
    session = make(GIVEN)
    session.do("add", "me", "add", name="dog")
    known = session.classes
    other = threading.Thread(target=session.do, args=("remove", "you", "remove", None, "dog"))

    def slow():
        found = known()
        other.start()
        other.join(0.2)
        return found

    session.classes = slow
    session.do("answer", "me", "answer", 5, "dog")
    session.classes = known
    other.join()
    assert (session.classes(), session.labels()) == (list(NAMES), GIVEN)


def test_an_answer_of_a_class_that_is_being_removed_is_refused(make, monkeypatch):
    session, refused = make(GIVEN), []
    session.do("add", "me", "add", name="dog")
    after = Tally.after

    def answer():
        try:
            session.do("answer", "you", "answer", 5, "dog")
        except Refused as error:
            refused.append(str(error))

    other = threading.Thread(target=answer)

    def slow(state, event):
        if event.kind == "remove":
            other.start()
            other.join(0.2)
        return after(state, event)

    monkeypatch.setattr(Tally, "after", slow)
    session.do("remove", "me", "remove", name="dog")
    other.join()
    assert refused == ["'dog' is none of the classes: add it first."]
    assert (session.classes(), session.labels()) == (list(NAMES), GIVEN)


def test_a_file_with_an_answer_of_a_class_that_was_removed_can_be_gone_on_with(make):
    session = make(GIVEN)
    session.store.do("a", "me", "answer", 5, "dog")
    session = make(GIVEN)
    assert session.adviser.settled()
    state = session.state()
    assert [each["name"] for each in state["classes"]] == [*NAMES, "dog"]
    assert [star[0] for star in state["stars"]] == [*GIVEN, 5]
    assert session.describe(5)["given"] == 3
    say(session, 5, "cat", again=True)
    assert session.classes() == list(NAMES)


def test_what_is_shown_takes_no_harm_from_a_class_removed_meanwhile(make):
    session = make(GIVEN)
    session.store.do("a", "me", "answer", 5, "dog")
    assert session.adviser.settled()
    session.classes = lambda: list(NAMES)
    assert [star[0] for star in session.state()["stars"]] == list(GIVEN)
    assert session.describe(5)["given"] == -1
    assert {each["row"] for each in session.describe(6)["neighbors"]} == {*GIVEN}


def test_beliefs_are_those_of_all_labels(make):
    session = make(GIVEN)
    assert session.adviser.settled()
    for row in (10, 11, 12, 13):
        say(session, row)
    assert session.adviser.settled()
    found = session.adviser.now.classifier
    given = {**GIVEN, **{row: TRUTH[row] for row in (10, 11, 12, 13)}}
    assert dict(zip(found.labels_.nodes.tolist(), found.classes_[found.labels_.y], strict=True)) == given
    # Hyper-parameters were learned again on the way, and later labels added to that.
    X, _ = blobs()
    y = np.array([given.get(row, "") for row in range(N)], dtype=object)
    fresh = GraphClassifier(n_neighbors=6).fit(X, y)
    np.testing.assert_allclose(found.label_distributions_, fresh.label_distributions_, atol=0.15)


def test_undo_takes_a_label_from_the_model(make):
    session = make(GIVEN)
    assert session.adviser.settled()
    before = session.state()["map"]
    say(session, 10)
    session.do("undo", "me", "undo")
    assert session.labels() == GIVEN
    assert session.state()["map"] == before
    assert session.question("me")["row"] == 10


def test_the_last_label_of_a_class_may_go(make):
    session = make({0: "ant"})
    session.do("add", "me", "add", name="bee")
    say(session, 1)
    assert session.adviser.settled()
    session.do("undo", "me", "undo")
    assert session.state()["map"] is None
    assert session.adviser.settled()
    assert session.question("me")["row"] == 1


def test_skipped_rows_come_last_and_unsure_ones_never(make):
    session = make({row: TRUTH[row] for row in range(N - 4)})
    assert session.adviser.settled()
    a, b, c, d = range(N - 4, N)
    first = session.question("me")["row"]
    session.do("1", "me", "skip", first)
    second = session.question("me")["row"]
    session.do("2", "me", "unsure", second)
    rest = [row for row in (a, b, c, d) if row not in (first, second)]
    asked = []
    for _ in rest:
        asked.append(session.question("me")["row"])
        say(session, asked[-1])
    assert sorted(asked) == rest
    assert session.question("me")["row"] == first
    say(session, first)
    assert session.question("me") is None
    assert "nothing left" in session.state()["advice"][0]


def test_two_tabs_never_have_the_same_row_to_the_end(make, monkeypatch):
    monkeypatch.setattr(sessions, "PATIENCE", 0.0)
    monkeypatch.setattr(sessions.Session, "describe", lambda _, row: {"row": row})
    session = make(GIVEN)
    asked = []
    while True:
        now = [found["row"] for tab in ("me", "you", "them") if (found := session.question(tab)) is not None]
        if not now:
            break
        assert len(set(now)) == len(now)
        asked += now
        for tab, row in zip(("me", "you", "them"), now, strict=False):
            session.do(f"{tab} {row}", tab, "unsure", row)
    assert sorted(asked) == sorted(set(range(N)) - set(GIVEN))


def test_a_label_that_the_others_speak_against_is_shown_again(make):
    session = make({row: TRUTH[row] for row in range(24)} | {3: "bee"})
    assert session.adviser.settled()
    (doubted,) = session.state()["suspicious"]
    assert (doubted["row"], doubted["given"], doubted["likelier"]) == (3, 1, 0)
    with pytest.raises(Refused, match="table has a class"):
        say(session, 3)
    say(session, 3, again=True)
    assert session.labels()[3] == "ant"
    assert session.adviser.settled()
    assert session.state()["suspicious"] == []


def test_a_class_that_comes_leaves_the_rivals_of_doubted_labels_as_they_were(make, monkeypatch):
    """Between ant and cat a bee comes: until the thread has weighed again, what it said is about ant and cat."""
    right = {row: TRUTH[row] for row in range(30) if TRUTH[row] != "bee"}
    session = make(right | {0: "cat", 2: "ant"})
    adviser = session.adviser
    assert adviser.settled()

    def doubted():
        state = session.state()
        names = [each["name"] for each in state["classes"]]
        return {each["row"]: (names[each["given"]], names[each["likelier"]]) for each in state["suspicious"]}

    expected = {0: ("cat", "ant"), 2: ("ant", "cat")}
    assert doubted() == expected
    weigh, go = adviser._weigh, threading.Event()
    monkeypatch.setattr(adviser, "_weigh", lambda *given: (go.wait(60), weigh(*given)))
    session.do("add", "me", "add", name="bee")
    say(session, 1)
    with adviser._news:
        assert adviser._news.wait_for(lambda: "bee" in adviser.now.classifier.classes_, 60)
    assert doubted() == expected
    go.set()
    assert adviser.settled()
    assert doubted() == expected


def test_what_cannot_be_is_refused_in_a_sentence(make):
    session = make(GIVEN)
    with pytest.raises(Refused, match="none of the classes"):
        say(session, 10, "dog")
    with pytest.raises(Refused, match="no row 60"):
        session.do("k", "me", "answer", N, "ant")
    with pytest.raises(Refused, match="already"):
        session.do("k", "me", "add", name="ant")
    with pytest.raises(Refused, match="'ANT' differs from 'ant' only in capitals or spaces"):
        session.do("k", "me", "add", name="ANT")
    session.do("accent", "me", "add", name="\u00e9mu")
    with pytest.raises(Refused, match="capitals, spaces or how letters are encoded"):
        session.do("k", "me", "add", name="e\u0301mu")
    session.do("no accent", "me", "remove", name="\u00e9mu")
    for name, why in (
        ("", "needs a name"),
        ("\u200d", "needs a name"),
        ("\u200c \u200d", "needs a name"),
        ("a\u200b", "cannot be shown"),
        ("x" * (MAX_NAME + 1), "at most"),
        ("NA", "marks rows"),
        ("-1", "marks rows"),
    ):
        with pytest.raises(Refused, match=why):
            checked_name(name)
    assert checked_name("  two\n words ") == checked_name("two words \u200c") == "two words"
    for name in ("\u0645\u06cc\u200c\u062e\u0648\u0631\u062f", "\U0001f469\u200d\U0001f467"):  # Persian, a family
        assert checked_name(name) == name
    for k in range(MAX_CLASSES - 3):
        session.do(f"many {k}", "me", "add", name=f"class {k}")
    with pytest.raises(Refused, match="the most that can"):
        session.do("k", "me", "add", name="one more")


def test_all_is_there_after_the_end(make):
    session = make(GIVEN)
    assert session.adviser.settled()
    row = session.question("me")["row"]
    say(session, row)
    assert session.adviser.settled()
    waiting = session.question("me")["row"]
    progress = session.state()["progress"]
    assert [n for n, _, _ in progress] == [3, 4]
    assert all(loss is not None for _, _, loss in progress)
    again = make(GIVEN)
    assert again.adviser.settled()
    assert again.labels() == {**GIVEN, row: TRUTH[row]}
    assert again.question("me")["row"] == waiting
    assert [n for n, _, _ in again.state()["progress"]] == [3, 4]


@pytest.mark.parametrize("kind", [ValueError, OSError])
def test_a_failure_of_the_model_is_told_and_questions_go_on(make, monkeypatch, capsys, kind):
    def broken(*_):
        raise kind("no such luck")

    monkeypatch.setattr(adviser, "learned", broken)
    session = make(GIVEN)
    assert session.adviser.settled()
    assert session.state()["failure"] == "no such luck"
    assert session.question("me") is not None
    told = capsys.readouterr().err
    assert "no such luck" in told
    assert ("Traceback" in told) == (kind is ValueError)  # a full disk is no fault of the program


def test_some_rows_of_a_large_table_follow_answers(make, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_POINTS", 20)
    monkeypatch.setattr(kept, "FEW_NUMBERS", 0)
    session = make(GIVEN)
    assert session.adviser.settled()
    before = session.adviser.now.shown
    say(session, session.question("me")["row"])
    now = session.adviser.now
    assert now.shown.shape == (20, 3)
    exact = now.classifier.posterior_.probability(session.adviser.shown)
    assert np.abs(now.shown - exact).max() < 0.05 < np.abs(before - exact).max()
