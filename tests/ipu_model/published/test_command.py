"""``python -m ipu_model.published`` with files that are none."""

from __future__ import annotations

import pytest

from ipu_model.published.__main__ import main


@pytest.mark.parametrize(("content", "message"), [(None, "No such file"), ("rows", "Expecting value")])
def test_a_file_that_is_none_is_refused_in_one_line(content, message, tmp_path, capsys):
    file = tmp_path / "rows.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SystemExit, match="2"):
        main([str(file)])
    assert message in capsys.readouterr().err.splitlines()[-1]
