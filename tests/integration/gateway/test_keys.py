"""API keys from the command line, on a real database."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner, Result

from kici_scaler.cli.main import app
from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.errors import Conflict, InvalidInput, NotFound
from kici_scaler.service import keys
from kici_scaler.store import audit
from kici_scaler.store.engine import transaction
from tests.integration.gateway.house import House


@pytest.fixture
def cli(house: House, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setenv("KICI_DATABASE_URL", house.database_url)
    return house


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["keys", *arguments])


def secret_of(token: str) -> str:
    """The random part, which may hold underscores of its own."""
    return token.split("_", 3)[3]


def test_a_key_is_made_printed_once_listed_and_revoked(cli: House) -> None:
    made = run("create", "--scope", "dispatcher", "--name", "build", "--expires", "90d")
    assert made.exit_code == 0, made.output
    token = made.stdout.strip()
    assert re.fullmatch(r"kici_dispatcher_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", token)
    assert token not in made.stderr
    assert keys.authenticate(cli.runtime, token) is not None

    listed = run("list").stdout
    assert "build" in listed
    assert token not in listed
    assert secret_of(token) not in run("list", "--json").stdout

    assert run("revoke", "build").exit_code == 0
    assert keys.authenticate(cli.runtime, token) is None
    assert isinstance(run("revoke", "build").exception, NotFound)
    row = next(row for row in json.loads(run("list", "--json").stdout) if row["name"] == "build")
    assert row["state"] == "revoked"


def test_a_key_for_programs_comes_as_json(cli: House) -> None:
    made = json.loads(run("create", "--scope", "operator", "--name", "x", "--json").stdout)
    assert made["scope"] == "operator"
    assert made["expiresAt"] is None
    assert keys.authenticate(cli.runtime, made["token"]) is not None


def test_a_name_is_used_once_until_its_key_is_revoked(cli: House) -> None:
    assert run("create", "--scope", "agent", "--name", "x").exit_code == 0
    assert isinstance(run("create", "--scope", "agent", "--name", "x").exception, Conflict)
    assert run("revoke", "x").exit_code == 0
    assert run("create", "--scope", "agent", "--name", "x").exit_code == 0


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 65, "ü"])
def test_a_name_that_is_none_is_refused(cli: House, name: str) -> None:
    ended = run("create", "--scope", "agent", f"--name={name}")
    assert isinstance(ended.exception, InvalidInput)


def test_an_unknown_scope_is_refused(cli: House) -> None:
    assert run("create", "--scope", "root", "--name", "x").exit_code == 2


def test_what_is_done_to_keys_is_audited(cli: House) -> None:
    run("create", "--scope", "agent", "--name", "x")
    run("revoke", "x")
    with transaction(cli.runtime.engine) as connection:
        found = [(row.action, row.subject) for row in audit.recent(connection, 2)]
    assert found == [("key.revoke", "x"), ("key.create", "x")]


def test_only_the_hash_of_a_key_is_stored(cli: House) -> None:
    token = run("create", "--scope", "agent", "--name", "x").stdout.strip()
    everything = cli.scalar("SELECT string_agg(k::text, ' ') FROM api_keys k")
    assert secret_of(token) not in everything
    assert keys.hashed(token).hex() in everything


def test_a_key_with_another_secret_is_none(cli: House) -> None:
    token = run("create", "--scope", "agent", "--name", "x").stdout.strip()
    guess = secret_of(keys.new_token(KeyScope.AGENT))
    assert keys.authenticate(cli.runtime, token.replace(secret_of(token), guess)) is None
    assert keys.authenticate(cli.runtime, token) is not None


def test_a_key_from_a_file_is_admitted_however_often(cli: House) -> None:
    token = keys.new_token(KeyScope.OPERATOR)
    for _ in range(2):
        keys.ensure(cli.runtime, scope=KeyScope.OPERATOR, name="local", token=token)
    assert keys.authenticate(cli.runtime, token) is not None
    keys.revoke(cli.runtime, "local")
    keys.ensure(cli.runtime, scope=KeyScope.OPERATOR, name="local", token=token)
    assert keys.authenticate(cli.runtime, token) is None


def test_the_use_of_a_key_is_not_written_each_time(cli: House) -> None:
    token = run("create", "--scope", "agent", "--name", "x").stdout.strip()
    written = []
    for _ in range(3):
        keys.authenticate(cli.runtime, token)
        written.append(cli.scalar("SELECT xmin::text FROM api_keys WHERE name = 'x'"))
    assert len(set(written)) == 1


def test_without_a_database_it_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.delenv("KICI_DATABASE_URL", raising=False)
    monkeypatch.setenv("KICI_DATA_DIR", str(tmp_path_factory.mktemp("nothing")))
    ended = run("list")
    assert isinstance(ended.exception, InvalidInput)
    assert "KICI_DATABASE_URL is not set" in str(ended.exception)


def test_a_database_without_a_schema_is_named(
    monkeypatch: pytest.MonkeyPatch, empty_database: str
) -> None:
    monkeypatch.setenv("KICI_DATABASE_URL", empty_database)
    ended = run("list")
    assert isinstance(ended.exception, Conflict)
    assert "kici-scaler migrate" in str(ended.exception)
