"""``Image.find`` beside find(1) on the tree that the image was made of."""

import os
import subprocess
from datetime import datetime, timezone

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


def test_what_is_wrong_is_told_at_once(image):
    for wrong in ({"size": "many"}, {"type": "x"}, {"links": "5-"}, {"perm": "rwx"}):
        with pytest.raises(ValueError):
            image.find(**wrong)
    with pytest.raises(TypeError, match="user"):
        image.find(user="root")
    with pytest.raises(FileNotFoundError):
        list(image.find("/nothing"))
