"""Secrets planted into every field of a report that can hold one: none may be left.

What is searched for is the secret itself, in every byte of the file and however it may be written,
so that this proves something about the patterns that redaction uses instead of repeating them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from urllib.parse import quote

import pytest
import report_files

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.kernel.report import cubin, framing, messages, private, reader, redact, scrub

#: What is planted, and what of it must be gone.
SECRETS = [
    ("/home/alice/proj/k.cu", "alice"),
    ("/home/alice smith/proj x/k.cu", "alice smith"),
    ("/home/alice smith", "alice smith"),
    ("/home/山田太郎/研究/k.cu", "山田太郎"),
    ("/home/jürgen/build/k.cu", "jürgen"),
    ("/home/Δημήτρης", "Δημήτρης"),
    ("/Users/Bob Müller/Library/k.cu", "Bob Müller"),
    ("/users/carol/x", "carol"),
    ("/root/secretlab/k.cu", "secretlab"),
    ("/mnt/c/Users/Alice B/k.cu", "Alice B"),
    ("/Volumes/Secret Disk/k.cu", "Secret Disk"),
    ("C:\\Users\\Jürgen Müller\\proj\\k.cu", "Jürgen Müller"),
    ("C:\\Users\\alice", "alice"),
    ("C:/Users/Jürgen/proj/k.cu", "Jürgen"),
    ("C:\\\\Users\\\\alice\\\\k.cu", "alice"),
    ("D:\\secretlab\\k.cu", "secretlab"),
    ("d:/secret lab/k.cu", "secret lab"),
    ("C:\\Program Files (x86)\\SecretCorp\\k.cu", "SecretCorp"),
    ("\\\\secretserver\\team\\k.cu", "secretserver"),
    ("\\\\secretserver\\team share\\proj", "team share"),
    ("//secretserver/team/k.cu", "secretserver"),
    ("-I/scratch/secretteam", "secretteam"),
    ("-I/secretteam", "secretteam"),
    ("-isystem/opt/secretteam/include", "secretteam"),
    ("-IC:\\secretteam\\include", "secretteam"),
    ("--output=/scratch/secretteam/x", "secretteam"),
    ("nas:/scratch/secretteam", "secretteam"),
    ("PATH=/usr/bin:/opt/secretteam/bin", "secretteam"),
    ("(/scratch/secretteam)", "secretteam"),
    ("[/scratch/secretteam]", "secretteam"),
    ("'/scratch/secret team/x y'", "secret team"),
    ('"/scratch/secret team/x y"', "secret team"),
    ("file:///home/alice/k.cu", "alice"),
    ("file:///home/J%C3%BCrgen/k.cu", "J%C3%BCrgen"),
    ("%2Fhome%2Falice%2Fproj", "alice"),
    ("C%3A%5CUsers%5Calice%5Cproj", "alice"),
    ("~alice/proj/k.cu", "alice"),
    ("~/secretlab/k.cu", "secretlab"),
    ("/secretteam", "secretteam"),
    ("/.secretteam", "secretteam"),
    ("/secretteam/", "secretteam"),
    ("/データ", "データ"),
    ("10.1.2.3", "10.1.2.3"),
    ("10.1.2.3.", "10.1.2.3"),
    ("10.1.2.3:8080", "10.1.2.3"),
    ("fe80::1c2:aff:fe00:1%eth0", "1c2:aff"),
    ("2001:db8:85a3::8a2e:370:7334", "85a3"),
    ("00:1b:44:11:3a:b7", "1b:44:11"),
    ("00-1B-44-11-3A-B7", "1B-44-11"),
    ("001b.4411.3ab7", "4411"),
    ("alice@corp.example.com", "alice@corp"),
    ("jürgen.müller@firma.de", "müller@firma"),
    ("alice%40corp.example.com", "alice%40corp"),
    ("alice@gpu07", "alice@gpu07"),
    ("https://alice:s3cret@git.example.com/x", "s3cret"),
    ("postgres://alice:s3cret@dbhost/x", "s3cret"),
    ("alice:s3cret@dbhost", "s3cret"),
    ("GPU-8f0e3b5a-1d2c-4e6f-9a7b-0c1d2e3f4a5b", "8f0e3b5a"),
    # Credentials are written in two parts, so that nobody's search for secrets takes them for real.
    ("\\/home\\/alice\\/x.cu", "alice"),
    ("\\\\?\\C:\\Users\\alice\\x", "alice"),
    ("\\\\wsl$\\Ubuntu\\home\\alice", "alice"),
    ("/cygdrive/c/Users/Alice/k.cu", "Alice"),
    ("/c/Users/Alice/k.cu", "Alice"),
    ("/var/home/alice/k.cu", "alice"),
    ("/export/home/alice/k.cu", "alice"),
    ("$HOME/secretlab/k.cu", "secretlab"),
    ("${HOME}/secretlab/k.cu", "secretlab"),
    ("%USERPROFILE%\\secretlab\\k.cu", "secretlab"),
    ("[2001:db8:85a3::8a2e:370:7334]:80", "85a3"),
    ("http://[2001:db8:85a3::1]:80/x", "85a3"),
    ("10.1.2.3/24", "10.1.2.3"),
    ("ip-10-1-2-3", "10-1-2-3"),
    ("http://10.1.2.3:80/x", "10.1.2.3"),
    ("tcp://10.1.2.3:2222", "10.1.2.3"),
    ("node=10.1.2.3", "10.1.2.3"),
    ("x10.1.2.3", "10.1.2.3"),
    ("::ffff:10.1.2.3", "10.1.2.3"),
    ("fe80::abcd", "fe80::abcd"),
    ("{8F0E3B5A-1D2C-4E6F-9A7B-0C1D2E3F4A5B}", "8F0E3B5A"),
    ("MIG-8f0e3b5a-1d2c-4e6f-9a7b-0c1d2e3f4a5b", "8f0e3b5a"),
    ("urn:uuid:8f0e3b5a-1d2c-4e6f-9a7b-0c1d2e3f4a5b", "8f0e3b5a"),
    ("mailto:alice@corp.example.com", "alice@corp"),
    ("<alice@corp.example.com>", "alice@corp"),
    ("alice@localhost", "alice@localhost"),
    ("alice@gpunode", "alice@gpunode"),
    ("alice@gpunode:/data/x", "alice@gpunode"),
    ("ssh alice@login", "alice@login"),
    ("ssh://alice@host/x", "alice"),
    ("git@github.com:secretteam/repo.git", "secretteam"),
    ("git@git.corp.example:secretteam/repo", "secretteam"),
    ("alice@192.168.1.7", "192.168.1.7"),
    ("alice:s3cret@10.1.2.3", "s3cret"),
    ("alice:s3cr/et@dbhost", "s3cr/et"),
    ("https://alice:p%40ss@host/x", "p%40ss"),
    ("https://:s3cret@host/x", "s3cret"),
    ("https://s3crettoken@github.com/x", "s3crettoken"),
    ("redis://:s3cret@cache:6379/0", "s3cret"),
    ("jdbc:mysql://db/x?user=app&password=s3cretpw", "s3cretpw"),
    ("https://x.blob.core.windows.net/c?sig=Zm9vYmFyYmF6cXV4&se=1", "Zm9vYmFyYmF6cXV4"),
    ("https://b.s3.amazonaws.com/k?X-Amz-Signature=abcdef0123456789", "abcdef0123456789"),
    ("ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gHi", "aB3dE6gH9jK2"),
    ("gho_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gHi", "aB3dE6gH9jK2"),
    ("github_pat_11ABCDEFG0aB3dE6gH9jK2_mN5pQ8sT1vW4yZ7bC0dF3gHi", "aB3dE6gH9jK2"),
    ("glpat-aB3dE6gH9jK2mN5pQ8sT", "aB3dE6gH9jK2"),
    ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
    ("ASIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
    ("aws_secret_access_key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "bPxRfiCYEXAMPLEKEY"),
    ("AWS_SECRET_ACCESS_KEY: 'wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY'", "wJalrXUtnFEMI"),
    ("xoxb-123456789012-1234567890123-aB3dE6gH9jK2mN5pQ8sT1vW4", "aB3dE6gH9jK2"),
    ("xoxp-123456789012-aB3dE6gH9jK2mN5pQ8sT1vW4", "aB3dE6gH9jK2"),
    ("xapp-1-A012345-123456-aB3dE6gH9jK2", "aB3dE6gH9jK2"),
    ("https://hooks.slack.com/services/T0123/B0123/aB3dE6gH9jK2mN5pQ8sT1vW4", "aB3dE6gH9jK2"),
    ("AIzaSyD-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF", "aB3dE6gH9jK2"),
    ("ya29.aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF", "aB3dE6gH9jK2"),
    ("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", "aB3dE6gH9jK2"),
    ("hf_aB3dEgHjKmNpQsTvWyZbCdFgHiJkLmNoPq", "aB3dEgHjKmNp"),
    ("sk-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gHiJkLmNoPq", "aB3dE6gH9jK2"),
    ("sk-proj-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF-3gHi_JkLm", "aB3dE6gH9jK2"),
    ("sk-ant-api03-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF", "aB3dE6gH9jK2"),
    ("sk_live_aB3dE6gH9jK2mN5pQ8sT1vW4", "aB3dE6gH9jK2"),
    ("npm_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gHi", "aB3dE6gH9jK2"),
    ("pypi-AgEIcHlwaS5vcmcCJGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6", "AgEIcHlwaS5vcmcCJGFiY2Rl"),
    ("nvapi-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gHi", "aB3dE6gH9jK2"),
    ("dop_v1_0123456789abcdef0123456789abcdef", "0123456789abcdef"),
    ("wandb_v1_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF", "aB3dE6gH9jK2"),
    (
        "ey"
        "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "eyJzdWIiOiIxMjM0NTY3ODkwIn0",
    ),
    ("Authorization: Bearer aB3dE6gH9jK2mN5pQ8sT", "aB3dE6gH9jK2"),
    ("Authorization: Basic YWxpY2U6czNjcmV0", "YWxpY2U6czNjcmV0"),
    ("password=s3cretpw", "s3cretpw"),
    ("DB_PASSWORD='s3cretpw'", "s3cretpw"),
    ("--password s3cretpw", "s3cretpw"),
    ('"api_key": "s3cretkey123"', "s3cretkey123"),
    ("API_TOKEN=s3cretkey123", "s3cretkey123"),
    ("s3://secretbucket/key/x.bin", "secretbucket"),
    ("gs://secretbucket/key", "secretbucket"),
    ("s3a://secretbucket", "secretbucket"),
    ("az://secretbucket/x", "secretbucket"),
    ("abfss://secretbucket@acct.dfs.core.windows.net/x", "secretbucket"),
    ("hdfs://secretnode/user/x", "secretnode"),
    ("smb://secretserver/share", "secretserver"),
    ("nfs://secretserver/share", "secretserver"),
    ("sftp://secretserver/share", "secretserver"),
    ("arn:aws:s3:::secretbucket/x", "secretbucket"),
    ("https://secretbucket.s3.amazonaws.com/x", "secretbucket"),
    (
        "-----BEGI"
        "N RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA1234secretkeyline\nabcdsecretkeyline2==\n-----END RSA PRIVATE KEY-----",
        "secretkeyline",
    ),
    ("--token hunters", "hunters"),
    ("--hf-token=hunters", "hunters"),
    ("HF_TOKEN=hunters", "hunters"),
    ('export MY_SECRET="hunters of x"', "hunters of x"),
    ("SECRET=hunters", "hunters"),
    ("DB_PWD: 'hunters'", "hunters"),
    ("OPENAI_API_KEY=hunters", "hunters"),
    ("-I/data/user=alice/secretlab/k.cu", "secretlab"),
    ("/data/al,ice/secretlab/k.cu", "secretlab"),
    ("/data/[team]/secretlab/k.cu", "secretlab"),
    ("/data/it's/secretlab/k.cu", "secretlab"),
    ("-Wl,-rpath,/opt/one,/opt/secretlab/lib", "secretlab"),
    ("\\\\?\\C:\\secretlab\\k.cu", "secretlab"),
    ("\\\\.\\C:\\secretlab\\k.cu", "secretlab"),
    ("\\\\?\\UNC\\secretserver\\secretlab\\k.cu", "secretlab"),
    ("010.001.002.003", "010.001.002.003"),
    ("inet6:fd12:3456:789a::1: up", "fd12:3456:789a"),
    ("node07.gpu.secretcorp.com", "secretcorp"),
    ("MASTER_ADDR=secretnode", "secretnode"),
    ("SLURM_JOB_NODELIST=secret[01-04,07]", "secret[01-04"),
    ("SLURMD_NODENAME=secretnode", "secretnode"),
    ("POD_NAME=secretpod", "secretpod"),
    (
        "-----BEGI"
        "N OPENSSH PRIVATE KEY-----\\nb3BlbnNzaC1rZXktdjEAAAAA\\n-----END OPENSSH PRIVATE KEY-----",
        "b3BlbnNzaC1rZXktdjEAAAAA",
    ),
]

HEADER, SOURCE, RESULT = "header", "source", "result"
#: Fields that redaction replaces as a whole, by their numbers from the block's header, a source or a
#: result down.
WHOLE = [
    (HEADER, (3, 3, 2), "host: build of the system"), (HEADER, (3, 3, 5), "host: computer name"),
    (HEADER, (3, 3, 7, 1), "host: address"), (HEADER, (3, 4, 2), "target: build of the system"),
    (HEADER, (3, 4, 5), "target: computer name"), (HEADER, (3, 4, 7, 1), "target: address"),
    (HEADER, (3, 7), "session: comments"), (HEADER, (3, 9, 1), "program: path"),
    (HEADER, (3, 9, 2), "program: working folder"), (HEADER, (3, 9, 3), "program: arguments"),
    (HEADER, (3, 9, 4), "program: environment"), (HEADER, (3, 10, 5, 1), "filter: kernel name"),
    (HEADER, (3, 10, 5, 7), "filter: NVTX range"), (HEADER, (3, 11), "command line of the profiler"),
    (HEADER, (3, 99), "a field that is not known"), (HEADER, (99, 1), "a message that is not known"),
    (HEADER, (6, 2), "process: host name"), (HEADER, (6, 3), "process: name"),
    (RESULT, (12,), "launch: comments"), (RESULT, (18, 2), "comment on a section: its title"),
    (RESULT, (18, 3), "comment on a section"), (RESULT, (26,), "name of the context"),
    (RESULT, (27,), "name of the stream"), (RESULT, (28, 1, 1), "stack: module"),
    (RESULT, (32, 1, 1), "stack of Python: module"), (RESULT, (99,), "a field that is not known"),
]  # fmt: skip
#: Fields with a text that stays but for what is private in it.
TEXT = [
    (HEADER, (3, 3, 1), "host: system"), (HEADER, (3, 3, 3), "host: processor"),
    (HEADER, (3, 5, 1, 2), "device: property"), (HEADER, (3, 6, 3, 2, 1), "device: attribute"),
    (HEADER, (3, 10, 7), "settings: sections"), (SOURCE, (8, 1, 2), "source code"),
    (SOURCE, (2,), "source code of a program"), (SOURCE, (3,), "intermediate code"),
    (RESULT, (13, 2, 1), "metric: text"), (RESULT, (13, 3, 1, 1), "metric: text of an instance's place"),
    (RESULT, (13, 3, 2, 1), "metric: text of an instance"), (RESULT, (17, 7), "section: description"),
    (RESULT, (17, 5, 2), "section: label of a body"), (RESULT, (19, 3, 1, 1, 1), "rule: message"),
    (RESULT, (19, 3, 1, 8, 5), "rule: what a metric tells"),
    (RESULT, (19, 3, 1, 12, 2, 4), "rule: cell of a table"),
    (RESULT, (19, 5, 4), "rule: tooltip of a marker"), (RESULT, (21, 1, 2), "NVTX: domain"),
    (RESULT, (21, 1, 3, 2), "NVTX: registered string"),
    (RESULT, (21, 1, 4, 2, 2), "NVTX: name of a resource"), (RESULT, (21, 2, 2, 3, 1), "NVTX: range"),
    (RESULT, (21, 2, 2, 3, 2, 4, 8), "NVTX: payload"), (RESULT, (21, 2, 2, 3, 2, 5, 2), "NVTX: message"),
    (RESULT, (21, 3, 3, 2), "NVTX: start-end range"), (RESULT, (28, 1, 4), "stack: function"),
    (RESULT, (38, 4, 3), "NVTX on the device"),
]  # fmt: skip
#: Code in which a slash divides: a path of one component is one there only in quotes.
CODE = {"source code", "source code of a program", "intermediate code"}
#: Fields that hold the path of a source file.
FILE = [
    (SOURCE, (8, 1, 1), "source file"),
    (RESULT, (19, 5, 6), "marker: source file"),
    (RESULT, (28, 1, 3), "stack: source file"),
    (RESULT, (32, 1, 3), "stack of Python: source file"),
]
FIELDS = [*WHOLE, *TEXT, *FILE]


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return report_files.varint(number << 3) + report_files.varint(value)
    return report_files.varint(number << 3 | 2) + report_files.varint(len(value)) + value


def nested(path: tuple[int, ...], text: bytes) -> bytes:
    for number in reversed(path):
        text = field(number, text)
    return text


def prefixed(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message


def report(*planted: tuple[str, tuple[int, ...], bytes]) -> bytes:
    """A report of one source and one result that holds nothing but what is planted."""
    parts = dict.fromkeys((HEADER, SOURCE, RESULT), b"")
    for where, path, text in planted:
        parts[where] += nested(path, text)
    payload = prefixed(field(1, 7) + parts[SOURCE]) + prefixed(field(1, 7) + parts[RESULT])
    header = field(1, 1) + field(2, 1) + field(5, len(payload)) + parts[HEADER]
    return framing.MAGIC + prefixed(field(1, 1)) + prefixed(header) + payload


def left(data: bytes, secret: str) -> list[str]:
    """In which writings a secret is found in a file."""
    ways = {
        "UTF-8": secret.encode(),
        "UTF-16": secret.encode("utf-16-le"),
        "UTF-16, big-endian": secret.encode("utf-16-be"),
        "UTF-32": secret.encode("utf-32-le"),
        "percent-escaped": quote(secret, safe="").encode(),
        "upper case": secret.upper().encode(),
        "lower case": secret.lower().encode(),
    }
    low = data.lower()
    return [way for way, needle in ways.items() if needle in data or needle.lower() in low]


@pytest.mark.parametrize(("planted", "secret"), SECRETS, ids=[text for text, _ in SECRETS])
def test_no_planted_secret_is_left(planted: str, secret: str) -> None:
    """Alone in one field after the other, so that no field's redaction rests on another's; in fields
    of free text also in a sentence and in quotes."""
    found = []
    one = planted.strip("/").isidentifier() or planted in (
        "/.secretteam",
        "/secretteam/",
        "-I/secretteam",
    )
    for where, path, what in FIELDS:
        texts = [planted]
        if (where, path, what) in TEXT:
            inside = [f"see {planted}, or not", f'#include "{planted}"', f"a\n{planted}\nb"]
            texts = inside[1:2] if what in CODE and one else [planted, *inside]
        if (where, path, what) in FILE:
            texts = [f"/data/{secret}/kernel.cu", f"{secret}/kernel.cu", f"X:\\{secret}\\kernel.cu"]
        for text in texts:
            data = report((where, path, text.encode()))
            assert left(data, secret), "it was there"
            after = scrub.scrub(data, paths=True).data
            assert len(after) == len(data)
            assert framing.parse(after).problem == ""
            if left(after, secret):
                found.append((what, text, after[-120:]))
    assert found == []


@pytest.mark.parametrize(("planted", "secret"), SECRETS, ids=[text for text, _ in SECRETS])
@pytest.mark.parametrize(
    "coding",
    [
        "utf-16-le",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("utf-8", "utf-16-be", "utf-32-le")
        ),
    ],
)
def test_no_secret_is_left_in_binary_data(planted: str, secret: str, coding: str) -> None:
    if coding == "utf-16-be" and not planted.isascii():
        pytest.skip("other scripts are looked for in the order of bytes of GPUs and their hosts")
    text = planted if coding == "utf-8" else f"config {planted}"
    end = "\0".encode(coding)
    data = report((SOURCE, (4,), b"\x01\x02\xff\xfe\x80\0\0\0" + text.encode(coding) + end))
    assert left(data, secret)
    assert left(scrub.scrub(data, paths=True).data, secret) == []


def test_a_name_in_an_older_code_page_goes_too() -> None:
    """Protobuf wants UTF-8, and a program may write what it likes."""
    for where, path, what in (*WHOLE, *TEXT):
        data = report((where, path, b"see /home/j\xfcrgen/proj/k.cu"))
        assert b"rgen" not in scrub.scrub(data, paths=True).data, what


#: What goes where a program's source is not: its members and arguments look alike.
IN_TEXT = [
    ("pwd: hunters", "hunters"), ("password=hunters", "hunters"), ("token: hunters", "hunters"),
    ("gpu07.secretcorp.de", "secretcorp"), ("secretnode-1.internal", "secretnode-1"),
    ("trainer.secretteam.svc.cluster.local", "secretteam"),
    ("secrettrainer-7d9f8b6c5d-x2x9z", "secrettrainer"), ("secretgpu[01-04,07]", "secretgpu"),
]  # fmt: skip


@pytest.mark.parametrize(("planted", "secret"), IN_TEXT)
def test_what_is_private_in_a_text_that_is_no_code(planted: str, secret: str) -> None:
    for where, path, what in FIELDS:
        if what not in CODE and (where, path, what) not in FILE:
            for text in (planted, f"see {planted}, or not"):
                after = scrub.scrub(report((where, path, text.encode())), paths=True).data
                assert not left(after, secret), (what, text)


CLEAN = [
    "--max-token 128 --tokenizer gpt2 EOS_TOKEN=1234 max_tokens=12345",
    "params.internal = a.local + it.svc; x[0-31]; torch.nn.functional",
    "float4 v = a[i] / b[j]; // 10.5 GB/s at 3:2", "extern int token; token = next(secret, 5);",
    "kernel<<<grid, block>>>(access_key, x / y);", "See https://docs.nvidia.com/cuda/index.html for more.",
    "risk-free task-level parallelism-with-many-words", "std::vector<int>::iterator abc::def",
    "half_hf_type hf_small; sk-test; npm_x; eyJust.a.word", "memcpy@GLIBC_2.14 exit@plt",
    "a private key of the hash, an access pattern, a shared secret", "Basic occupancy12345 of the bearer",
]  # fmt: skip


@pytest.mark.parametrize("text", CLEAN)
def test_what_is_no_secret_stays(text: str) -> None:
    rules = private.Rules()
    assert rules.code(text) == text
    assert rules.text(text) == text


HOSTS = ["gpu-node07", "q7", "Sky", "wörk-1", "build.lab.example.org", "cn2"]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_goes_wherever_a_user_may_have_written_it(host: str) -> None:
    """However short, in any case, with its domain or without."""
    free = [
        entry for entry in TEXT if entry[2].startswith(("NVTX", "rule: m", "source code", "stack"))
    ]
    for reported in {host, host.upper(), host.lower(), host.split(".")[0]}:
        for where, path, _ in free:
            text = f"run on {reported}, twice".encode()
            data = report((HEADER, (3, 3, 5), host.encode()), (where, path, text))
            after = scrub.scrub(data, paths=True).data
            assert b"run on " + b"x" * 2 in after
            assert f" {reported},".encode() not in after


def test_names_that_figures_hang_on_stay() -> None:
    """A host or user called like a kernel, a metric or a GPU leaves those alone."""
    kept = [
        (RESULT, (5,), b"_Z5volta"), (RESULT, (6,), b"volta"), (RESULT, (7,), b"volta(float *)"),
        (HEADER, (4, 1), b"volta__cycles.sum"), (HEADER, (3, 6, 2), b"NVIDIA volta"), (SOURCE, (9, 1, 1), b"volta"),
        (RESULT, (19, 1), b"volta"), (RESULT, (17, 1), b"volta"),
    ]  # fmt: skip
    data = report((HEADER, (3, 3, 5), b"volta"), *kept)
    assert scrub.scrub(data, paths=True).data == data.replace(
        nested((3, 3, 5), b"volta"), nested((3, 3, 5), b"xxxxx")
    )


def test_source_files_of_one_shape_stay_apart() -> None:
    """Folders of one length become different neutral folders where their files are called alike:
    otherwise a line would lead to another file's source."""
    names = [b"/a/one/kk.cu", b"/a/two/kk.cu", b"/a/two/mm.cu"]
    data = report(*((SOURCE, (8, 1, 1), name) for name in names))
    after = scrub.scrub(data, paths=True).data
    new = [span.of(after) for span in scrub.texts(framing.parse(after))]
    assert len(set(new)) == 3
    assert new[1].rpartition("/")[0] == new[2].rpartition("/")[0]
    assert not any(word in after for word in (b"one", b"two"))
    assert scrub.scrub(after, paths=True).data == after
    gone = scrub.scrub(data, paths=True, source=True).data
    new = [span.of(gone) for span in scrub.texts(framing.parse(gone))]
    assert len(set(new)) == 3
    assert all(name.endswith(".cu") for name in new)
    assert not any(word in gone for word in (b"kk", b"mm"))


def elf(*sections: tuple[str, bytes]) -> bytes:
    """A 64-bit ELF file of these sections and their names."""
    named = [("", b""), *sections]
    strings = b"\0".join(name.encode() for name, _ in named) + b"\0.shstrtab\0"
    body, headers = b"", b""
    for name, content in (*named, (".shstrtab", strings)):
        at = strings.index(b"\0" + name.encode() + b"\0") + 1 if name else 0
        headers += struct.pack(
            "<IIQQQQIIQQ", at, 1 if name else 0, 0, 0, 64 + len(body), len(content), 0, 0, 1, 0
        )
        body += content
    head = b"\x7fELF\2\1\1".ljust(0x28, b"\0") + struct.pack("<Q", 64 + len(body))
    head = head.ljust(0x3A, b"\0") + struct.pack("<HHH", 64, len(named) + 1, len(named))
    return head.ljust(64, b"\0") + body + headers


def line_table(folders: list[bytes], files: list[bytes]) -> bytes:
    """A DWARF 2 line table without a program; sizes of files are such that they look like text."""
    tables = b"".join(name + b"\0" for name in folders) + b"\0"
    tables += b"".join(name + b"\0\x41\x42\x43" for name in files) + b"\0"
    rest = bytes([1, 1, 0xFF, 10, 10, *([0] * 9)]) + tables
    return struct.pack("<IHI", 6 + len(rest), 2, len(rest)) + rest


def test_machine_code_keeps_its_instructions_and_loses_its_folders() -> None:
    code = b"/home/alice/x\0" * 3  # instructions that look like a path are instructions
    table = line_table(
        [b"/home/alice smith/proj", b"../secretlab"], [b"k.cu", b"/scratch/secretteam/m.cuh"]
    )
    debug = b"\x01A/home/alice/proj/k.cu\0nvcc -I/scratch/secretteam\0./secretlab/k.cu\0"
    whole = elf(
        (".text.naive", code), (".strtab", b"\0naive\0"), (".debug_line", table), (".debug_str", debug),
        (".nv.global.init", b"./secretlab/a.cu\0/%d of %d\0"),
    )  # fmt: skip
    data = report((SOURCE, (4,), whole), (SOURCE, (8, 1, 1), b"/home/alice smith/proj/k.cu"))
    after = scrub.scrub(data, paths=True).data
    assert code in after
    after = after.replace(code, b"")
    for gone in (b"alice", b"smith", b"proj", b"secretlab", b"secretteam"):
        assert gone not in after
    for kept in (
        b"naive\0",
        b"k.cu\0\x41\x42\x43",
        b"/m.cuh\0",
        b"/a.cu\0",
        b"/%d of %d\0",
        b"/k.cu",
    ):
        assert kept in after
    folder = b"/xxxx/xxxxxxxxxxx/xxxx"
    assert after.count(folder) == 2, "the line table and the source file still agree"


ZLIB, ZSTD = (1, zlib.compress), (2, files.zstd().compress)


@pytest.mark.parametrize("how", ["zlib", "zstd", "old", "broken"])
def test_compressed_sections_of_machine_code_are_cleaned(how: str) -> None:
    """Unpacked, cleaned and packed again; one that cannot be unpacked is left empty."""
    text = b"\0".join(
        [b"/home/alice/secretlab/%d.cu" % n for n in range(50)]
        + [b"HF_TOKEN=hunters", b"kept", b""]
    )
    kind, pack = ZSTD if how == "zstd" else ZLIB
    packed = pack(text) if how != "broken" else b"/home/alice/secretlab/k.cu\0"
    name, flags, head = ".debug_str", 0x800, struct.pack("<IIQQ", kind, 0, len(text), 1)
    if how == "old":
        name, flags, head = ".zdebug_str", 0, b"ZLIB" + len(text).to_bytes(8, "big")
    code = bytearray(elf((".text.naive", b"instructions"), (name, head + packed)))
    (table,) = struct.unpack_from("<Q", code, 0x28)
    struct.pack_into("<Q", code, table + 2 * 64 + 8, flags)
    data = report((SOURCE, (4,), bytes(code)))
    assert how == "broken" or scrub.leftovers(data, paths=True)
    after = scrub.scrub(data, paths=True).data
    assert len(after) == len(data)
    (source,) = messages.sources(framing.parse(after))
    assert b"instructions" in source.code
    found = list(cubin.packed(source.code))
    if how == "broken":
        assert source.sections[2].size == 0
        assert not found
    else:
        (only,) = found
        assert only.content is not None
        assert len(only.content) == len(text)
        assert b"kept" in only.content
        assert not any(left(only.content, word) for word in ("alice", "secretlab", "hunters"))
    assert scrub.leftovers(after, paths=True) == []
    assert b"secretlab" not in after


@pytest.fixture(scope="module")
def real() -> bytes:
    return report_files.first_launches(1)


def planted_in(data: bytes, header: bytes, source: bytes, result: bytes) -> bytes:
    """A real report with further fields at the end of each message, which is how protobuf adds to a
    message or replaces a text in it."""
    pieces, at = [], 0
    for block in framing.parse(data).blocks:
        pieces.append(data[at : block.offset])
        payload = b""
        for spans, more in ((block.sources, source), (block.results, result)):
            for offset, length in spans:
                payload += prefixed(data[offset : offset + length] + more)
                at = offset + length
        head = block.header
        for number, raw, _ in report_files.raw_fields(header):
            if any(number == known for known, _, _ in report_files.raw_fields(block.header)):
                head += raw
        if payload:
            head += field(5, len(payload))
        else:
            at = block.offset + 4 + len(block.header)
        pieces += [prefixed(head), payload]
    return b"".join([*pieces, data[at:]])


def full(text: bytes, path: bytes) -> tuple[bytes, bytes, bytes]:
    """Fields for a header, a source and a result of a real report, whole as the profiler's module
    wants them."""
    header = b"".join(
        nested(place, text)
        for where, place, _ in FIELDS
        if where == HEADER and 99 not in place and place not in ((3, 5, 1, 2), (3, 6, 3, 2, 1))
    )
    quoted = b'"' + text + b'"'
    source = nested((8, 1), field(1, path) + field(2, quoted))
    frame = nested((1,), field(1, text) + field(2, 0) + field(3, path) + field(4, text))
    message = nested((1,), field(1, text) + field(2, 0))
    rule = field(1, b"Planted") + field(2, b"Planted") + nested((3, 1), message)
    rule += field(5, field(4, text) + field(6, path))
    strings = field(1, 1) + field(2, text)
    nvtx = field(1, strings + field(3, strings))
    nvtx += field(2, field(1, 1) + field(2, field(1, 0) + field(3, field(1, text))))
    result = b"".join(
        (field(12, text), field(18, nested((1, 1), b"X") + field(2, text) + field(3, text)), field(19, rule), field(21, nvtx),
         field(26, text), field(27, text), field(28, frame), field(32, frame))
    )  # fmt: skip
    return header, source, result


@pytest.mark.slow
@pytest.mark.parametrize("remove_source", [False, True])
def test_a_real_report_full_of_secrets(real: bytes, tmp_path: Path, remove_source: bool) -> None:
    """All of them in all fields at once: none is left, and the profiler's own module reads the same
    figures, names and instructions."""
    parts = [b"", b"", b""]
    for planted, secret in SECRETS:
        for index, more in enumerate(full(planted.encode(), f"/data/{secret}/kernel.cu".encode())):
            parts[index] += more
    source = tmp_path / "in.ncu-rep"
    source.write_bytes(planted_in(real, *parts))
    plain = tmp_path / "plain.ncu-rep"
    plain.write_bytes(real)
    done = redact.redact(source, tmp_path / "out.ncu-rep", remove_source=remove_source)
    after = done.path.read_bytes()
    assert all(left(source.read_bytes(), secret) for _, secret in SECRETS)
    # a word of four letters stands in numbers by chance
    assert [secret for _, secret in SECRETS if len(secret) > 4 and left(after, secret)] == []
    (old,), (new,) = reader.load_report(plain).profiles, reader.load_report(done.path).profiles
    assert old.readings == new.readings
    assert old.launch.kernel == new.launch.kernel
    assert [row.sass for row in old.instructions] == [row.sass for row in new.instructions]


def test_what_the_rules_miss_is_found_before_it_is_written(
    real: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search at the end rests on no rule: with all of them gone nothing is written."""
    header = nested((3, 3, 5), b"gpu-node07") + nested((6, 3), b"/srv/secretteam/bin/app")
    source = nested((8, 1, 1), b"/srv/secretteam/bin/k.cu")
    path = tmp_path / "in.ncu-rep"
    path.write_bytes(planted_in(real, header, source, nested((12,), b"on GPU-NODE07")))
    redact.redact(path, tmp_path / "fine.ncu-rep")
    monkeypatch.setattr(private, "blank", str)
    monkeypatch.setattr(private.Rules, "path", lambda self, text: text)
    monkeypatch.setattr(scrub, "leftovers", lambda *_, **__: [])
    with pytest.raises(
        InputProblem, match=r"would still hold what it calls private: (name|folder)"
    ):
        redact.redact(path, tmp_path / "out.ncu-rep")
    assert not (tmp_path / "out.ncu-rep").exists()


def test_long_texts_take_no_long_time() -> None:
    """Patterns on a megabyte of what they look for: linear, not quadratic."""
    for unit in (
        "/a",
        "a.",
        "a:",
        "a@",
        "%2",
        "-a",
        "(",
        "C:",
        "\\\\",
        "~",
        "a b ",
        '"/',
        "1.2.",
        "ab:",
        "/home/a ",
    ):
        text = unit * (60_000 // len(unit))
        rules = private.Rules()
        assert len(rules.text(text).encode()) == len(text)
