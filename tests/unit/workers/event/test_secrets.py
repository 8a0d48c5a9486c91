"""Webhooks are signed with their target's secrets, and with nobody else's."""

from __future__ import annotations

import base64
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import SecretStr
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from workers.event.secrets import TargetSecrets, UnusableSecrets, parse_secrets
from workers.event.webhook import signature

TARGET = "https://hook.example/kici"


def secret(byte: int, size: int = 32) -> str:
    return "whsec_" + base64.b64encode(bytes([byte]) * size).decode()


def signed(secrets: TargetSecrets, target: str, body: str = '{"a":1}') -> dict[str, str]:
    return signature(secrets.of(target), "id-1", datetime.now(UTC), body)


def in_environment(stated: object) -> TargetSecrets:
    return TargetSecrets(SecretStr(json.dumps(stated)))


def test_a_receiver_with_the_secret_verifies_the_event() -> None:
    headers = signed(in_environment({TARGET: secret(1)}), TARGET)
    assert headers["webhook-id"] == "id-1"
    Webhook(secret(1)).verify('{"a":1}', headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret(2)).verify('{"a":1}', headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret(1)).verify('{"a":2}', headers)


def test_while_a_secret_is_replaced_receivers_with_either_one_verify() -> None:
    headers = signed(in_environment({TARGET: [secret(2), secret(1)]}), TARGET)
    for each in (secret(1), secret(2)):
        Webhook(each).verify('{"a":1}', headers)


def test_the_whole_address_goes_before_its_origin() -> None:
    secrets = in_environment({"https://hook.example": secret(1), TARGET: secret(2)})
    Webhook(secret(2)).verify('{"a":1}', signed(secrets, TARGET))
    Webhook(secret(1)).verify('{"a":1}', signed(secrets, "https://hook.example/other"))


@pytest.mark.parametrize(
    "target",
    [
        "https://hook.example.evil/kici",
        "http://hook.example/kici",
        "https://hook.example:8443/kici",
    ],
)
def test_a_secret_is_of_one_origin_only(target: str) -> None:
    secrets = in_environment({"https://hook.example": secret(1)})
    with pytest.raises(UnusableSecrets, match="no secret is known"):
        secrets.of(target)


def test_a_file_wins_over_the_environment_and_is_read_anew_when_it_changes(
    tmp_path: Path,
) -> None:
    file = tmp_path / "secrets.yaml"
    file.write_text(f'"{TARGET}": {secret(1)}\n')
    file.chmod(0o600)
    secrets = TargetSecrets(SecretStr(json.dumps({TARGET: secret(9)})), file)
    Webhook(secret(1)).verify('{"a":1}', signed(secrets, TARGET))
    fresh = tmp_path / "fresh"
    fresh.write_text(f'"{TARGET}": [{secret(2)}, {secret(1)}]\n')
    fresh.chmod(0o600)
    fresh.replace(file)
    Webhook(secret(2)).verify('{"a":1}', signed(secrets, TARGET))


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secrets.yaml"
    file.write_text(f'"{TARGET}": {secret(1)}\n')
    file.chmod(0o644)
    with pytest.raises(UnusableSecrets, match="may be read by others"):
        TargetSecrets(None, file).of(TARGET)


def test_a_file_that_is_gone_is_told_and_found_again(tmp_path: Path) -> None:
    file = tmp_path / "secrets.yaml"
    secrets = TargetSecrets(None, file)
    with pytest.raises(UnusableSecrets, match="cannot be read"):
        secrets.of(TARGET)
    file.touch(0o600)
    os.chmod(file, 0o600)  # noqa: PTH101  # whatever the umask made of it
    file.write_text(f'"{TARGET}": {secret(1)}\n')
    assert secrets.of(TARGET)


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        ({TARGET: "whsec_%%%"}, "no base64"),
        ({TARGET: secret(1, size=8)}, "too short"),
        ({TARGET: []}, "0 secrets"),
        ({TARGET: [secret(1), secret(2), secret(3)]}, "3 secrets"),
        ([secret(1)], "does not map"),
        ({TARGET: {"secret": secret(1)}}, "does not map"),
    ],
)
def test_what_cannot_be_used_is_told_without_the_secret(stated: object, why: str) -> None:
    with pytest.raises(UnusableSecrets, match=why) as error:
        parse_secrets(json.dumps(stated), "KICI_WEBHOOK_SECRETS")
    told = f"{error.value} {error.value.hint}"
    assert secret(1).removeprefix("whsec_") not in told


def test_secrets_stand_in_no_text_about_them() -> None:
    secrets = in_environment({TARGET: secret(1)})
    secrets.of(TARGET)
    assert base64.b64encode(bytes([1]) * 32).decode() not in repr(secrets)
