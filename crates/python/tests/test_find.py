"""``Image.find`` beside find(1) on the tree that the image was made of."""

import os
import subprocess
from datetime import datetime, timezone

import pyarrow
import pytest


def theirs(tree, *words):
    out = subprocess.run(["find", ".", *words, "-print0"], cwd=tree, check=True, stdout=subprocess.PIPE).stdout
    return {os.fsdecode(os.path.normpath(b"/" + name)) for name in out.split(b"\0") if name}


def ours(image, **where):
    return {str(path) for path in image.find(**where)} - {"/lost+found"}


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("", {}),
        ("-name *.conf", {"name": "*.conf"}),
        ("-iname HOSTS", {"iname": "HOSTS"}),
        ("-name *", {"name": "*"}),
        ("-path */conf.d/*", {"path": "*/conf.d/*"}),
        ("-regex .*/[ab]\\.conf", {"regex": r".*/[ab]\.conf"}),
        ("-type l", {"type": "l"}),
        ("-type f,l", {"type": "fl"}),
        ("-type f -size +1k", {"type": "f", "size": "+1k"}),
        ("-type f -size 6c", {"type": "f", "size": 6}),
        ("-type f -size -2", {"type": "f", "size": "-2b"}),
        ("-links 2 -type f", {"links": 2, "type": "f"}),
        ("-type f -perm 640", {"type": "f", "perm": 0o640}),
        ("-type f -perm -600", {"type": "f", "perm": "-600"}),
        ("-perm /022", {"perm": "/022"}),
        ("-type f -empty", {"type": "f", "empty": True}),
        ("-type f ! -empty", {"type": "f", "empty": False}),
        ("-mindepth 1 -maxdepth 2", {"mindepth": 1, "maxdepth": 2}),
        ("-mindepth 3", {"mindepth": 3}),
        ("-maxdepth 0", {"maxdepth": 0}),
        ("-type f -mtime +1000", {"type": "f", "mtime": "+1000"}),
        ("-type f -newermt 2010-01-01", {"type": "f", "newer": datetime(2010, 1, 1, tzinfo=timezone.utc)}),
    ],
)
def test_it_finds_what_find_does(image, tree, words, where):
    assert ours(image, **where) == theirs(tree, *words.split()) - {"/lost+found"}


def test_places_and_moments_are_paths_too(image):
    assert [str(path) for path in image.find("/etc/hosts")] == ["/etc/hosts"]
    assert [str(path) for path in image.find(image.path("/etc"), name="a.conf")] == ["/etc/conf.d/a.conf"]
    newer = {path.name for path in image.find("/etc", type="f", newer=image.path("/etc/hosts"))}
    assert newer == {"a.conf", "b.conf", ".hidden"}
    assert list(image.find("/etc/conf.d", inum=image.stat("/etc/conf.d").st_ino))


EXPRESSIONS = [
    "-name '*.conf' -o -type l",
    "-name conf.d -prune -o -type f",
    "! ( -name '*.conf' , -type d )",
    "-regextype posix-extended -regex '.*/[ab]+.conf'",
    "-type f -newermt 2010-01-01 -size -3k",
    "-xtype f -type l",
    "-lname '*hosts'",
    "-type f -perm -u=r,o=r",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_means_what_it_means_to_find(image, tree, expression):
    import shlex

    expected = theirs(tree, "(", *shlex.split(expression), ")") - {"/lost+found"}
    assert {str(path) for path in image.find("/", expression)} - {"/lost+found"} == expected
    # The table begins below the top.
    rows = pyarrow.table(image.table(columns=["path_bytes", "path"], where=expression)).to_pylist()
    paths = {os.fsdecode(row["path_bytes"] or row["path"].encode()) for row in rows}
    assert paths - {"/lost+found"} == expected - {"/"}


def test_keywords_choose_rows_of_the_table(image):
    where = {"type": "f", "name": "*.conf", "newer": image.path("/etc/hosts")}
    table = pyarrow.table(image.table("/etc", columns=["path", "size"], where=where))
    assert sorted(table["path"].to_pylist()) == ["/etc/conf.d/a.conf", "/etc/conf.d/b.conf"]
    assert table["size"].to_pylist() == [6, 6]
    assert pyarrow.table(image.table(where="-name nothing")).num_rows == 0
    assert pyarrow.table(image.table(columns=["path"], where={"maxdepth": 1})).num_rows == len(image.listdir("/"))


def test_owners_are_those_of_the_image(writable):
    writable.path("/etc/passwd").write_text("ann:x:77:7::/:\n")
    writable.path("/etc/of-ann").touch()
    writable.chown("/etc/of-ann", 77, 7)
    assert [path.name for path in writable.find(user="ann")] == ["of-ann"]
    assert [path.name for path in writable.find(uid=77, nogroup=True)] == ["of-ann"]
    with pytest.raises(ValueError, match="/etc/passwd"):
        writable.find(user="eve")


def test_what_is_wrong_is_told_at_once(image):
    for wrong in ({"size": "many"}, {"type": "x"}, {"links": "5-"}, {"perm": "rwx"}):
        with pytest.raises(ValueError):
            image.find(**wrong)
    for wrong in ("-name", "( -name x", "-print", "-exec rm {} ;", "-delete", "-follow", "-depth", "-size x"):
        with pytest.raises(ValueError):
            image.find("/", wrong)
        with pytest.raises(ValueError):
            image.table(where=wrong)
    with pytest.raises(TypeError, match="owner"):
        image.find(owner="root")
    with pytest.raises(FileNotFoundError):
        image.find("/nothing")
    with pytest.raises(FileNotFoundError):
        image.find("/", "-newer /nothing")
