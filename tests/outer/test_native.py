"""The compiled pieces: they build without a warning, and the hook keeps its promises to Slurm.

The hook runs here under AddressSanitizer and UBSan, against a server that behaves in every bad way.
"""

import asyncio
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podwright.guests.slurm.hooks._hook_request_proofs import MungeProofs
from podwright.guests.slurm.hooks._hook_server import HookFront
from podwright.guests.slurm.hooks._service_process import proofs
from podwright.guests.slurm.service import HookJob, Site
from podwright.hosts import Munge
from podwright.http import Reply
from tests.outer.lab import ALICE, Release, SlurmLab, poll
from tests.outer.lab._folder import new_folder, remove

NATIVE = Path(__file__).parents[2] / "src/podwright/guests/slurm/native"
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "5", "SLURM_JOB_LICENSES": "matlab:1,ipu:4"}

pytestmark = [pytest.mark.outer]

Hook = Callable[..., subprocess.CompletedProcess[str]]


def build(out: Path, **settings: str) -> None:
    words = [f"{key}={value}" for key, value in settings.items()]
    subprocess.run(["make", "-s", "-C", NATIVE, f"OUT={out}", *words], check=True)


class Server:
    """Answers every connection with fixed bytes; keeps what it was sent."""

    def __init__(self, path: Path | None, answer: bytes | None) -> None:
        self.asked: list[bytes] = []
        self._answer = answer
        family = socket.AF_UNIX if path else socket.AF_INET
        self._socket = socket.socket(family)
        self._socket.bind(str(path) if path else ("127.0.0.1", 0))
        self.port = 0 if path else self._socket.getsockname()[1]
        self._socket.listen(8)
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            self.asked.append(peer.recv(65536))
            if self._answer is None:
                self._open.append(peer)  # silence
                continue
            try:
                peer.sendall(self._answer)
            except OSError:
                pass
            finally:
                peer.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for peer in self._open:
            peer.close()


Serve = Callable[[Path | None, bytes | None], Server]


@pytest.fixture
def serve() -> Iterator[Callable[[Path | None, bytes | None], Server]]:
    servers: list[Server] = []

    def start(path: Path | None, answer: bytes | None) -> Server:
        servers.append(Server(path, answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("checked")
    build(out, CFLAGS="-O1 -g -U_FORTIFY_SOURCE -fsanitize=address,undefined")
    return out / "podwright-hook"


@pytest.fixture
def hook(checked: Path, tmp_path: Path) -> Hook:
    return hook_in(tmp_path, checked)


def hook_in(folder: Path, checked: Path) -> Hook:
    """The hook, set up in a folder."""
    for name in ("prolog-slurmctld", "epilog-slurmctld", "other"):
        (folder / name).symlink_to(checked)

    def run(
        conf: str, name: str = "prolog-slurmctld", **env: str
    ) -> subprocess.CompletedProcess[str]:
        (folder / "hook.conf").write_text(conf)
        return subprocess.run(
            [folder / name],
            env={"PATH": "/usr/bin:/bin", **JOB, **env},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


OK = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nKEY=value\n"


def test_a_job_is_described_and_the_answer_printed(
    hook: Hook, serve: Serve, tmp_path: Path
) -> None:
    server = serve(tmp_path / "s", OK)
    done = hook(f"server unix:{tmp_path}/s\n", SLURM_JOB_NAME='a "b"\\\n')
    assert (done.returncode, done.stdout, done.stderr) == (0, "KEY=value\n", "")
    head, _, body = server.asked[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /slurm.v1/JobBegins HTTP/1.0\r\n")
    assert json.loads(body) == {
        "job": "7",
        "uid": "5",
        "licences": "matlab:1,ipu:4",
        "name": 'a "b"\\\n',
    }


def test_jobs_without_devices_ask_nobody(hook: Hook, serve: Serve, tmp_path: Path) -> None:
    server = serve(tmp_path / "s", OK)
    for licences in ("matlab:4", "ipu_x4:1", "xipu:4"):
        done = hook(f"server unix:{tmp_path}/s\n", SLURM_JOB_LICENSES=licences)
        assert done.returncode == 0
    assert server.asked == []


def test_a_component_of_a_heterogeneous_job_is_told_without_licences(
    hook: Hook, serve: Serve, tmp_path: Path
) -> None:
    server = serve(tmp_path / "s", OK)
    env = {"SLURM_JOB_LICENSES": "", "SLURM_HET_JOB_ID": "6", "SPANK_IPUS": "4"}
    assert hook(f"server unix:{tmp_path}/s\n", "epilog-slurmctld", **env).returncode == 0
    assert server.asked[0].startswith(b"POST /slurm.v1/JobEnded ")


def test_a_refusal_is_final_and_says_why(hook: Hook, serve: Serve, tmp_path: Path) -> None:
    server = serve(tmp_path / "s", b"HTTP/1.1 409 Conflict\r\n\r\nno such devices")
    done = hook(f"server unix:{tmp_path}/s\n")
    assert done.returncode == 1
    assert "job 7 refused (409): no such devices" in done.stderr
    assert len(server.asked) == 1


def test_the_next_address_is_asked_where_one_is_dead_or_undecided(
    hook: Hook, serve: Serve, tmp_path: Path
) -> None:
    serve(tmp_path / "busy", b"HTTP/1.1 503 Later\r\n\r\n")
    serve(tmp_path / "good", OK)
    conf = "".join(f"server unix:{tmp_path}/{name}\n" for name in ("dead", "busy", "good"))
    done = hook(conf)
    assert (done.returncode, done.stdout) == (0, "KEY=value\n")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"",
        b"nonsense",
        b"HTTP/1.1 200 OK\r\nno end",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200_000,
    ],
    ids=["silence", "nothing", "nonsense", "cut", "endless"],
)
def test_a_broken_server_costs_the_time_allowed_and_no_more(
    hook: Hook, serve: Serve, tmp_path: Path, answer: bytes | None
) -> None:
    serve(tmp_path / "s", answer)
    start = time.monotonic()
    done = hook(f"server unix:{tmp_path}/s\nprolog-seconds 1\n")
    assert done.returncode == 75
    assert "no server answered within 1 s" in done.stderr
    assert time.monotonic() - start < 60  # a hang, not a stopwatch


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ("", "names no server"),
        ("server\n", "hook.conf:1: not understood: server"),
        ("colour red\n", "hook.conf:1: not understood: colour red"),
        ("server unix:/x\nprolog-seconds soon\n", "hook.conf:2: not understood"),
        (f"server unix:{'x' * 300}\n", "hook.conf:1: not understood"),
        ("server unix:/x\n" * 9, "hook.conf:9: not understood"),
    ],
)
def test_settings_that_make_no_sense_are_named(hook: Hook, conf: str, said: str) -> None:
    done = hook(conf)
    assert done.returncode == 2
    assert said in done.stderr


def test_too_long_a_description_is_an_error_and_not_cut(hook: Hook, tmp_path: Path) -> None:
    done = hook(f"server unix:{tmp_path}/s\n", SLURM_JOB_NODELIST="n" * 9000)
    assert done.returncode == 1
    assert "too long" in done.stderr


def test_the_sites_own_script_runs_first_and_its_failure_is_the_jobs(
    hook: Hook, serve: Serve, tmp_path: Path
) -> None:
    server = serve(tmp_path / "s", OK)
    script = tmp_path / "site"
    script.write_text("#!/bin/sh\necho site $SLURM_JOB_ID >&2\nexit 3\n")
    script.chmod(0o755)
    conf = f"server unix:{tmp_path}/s\nbefore-prolog-slurmctld {script}\n"
    done = hook(conf + f"before-epilog-slurmctld {script}\n")
    assert (done.returncode, done.stderr) == (3, "site 7\n")
    (told,) = server.asked
    assert told.startswith(b"POST /slurm.v1/PrologFailed ")
    assert f"the site's {script} ended with 3".encode() in told
    done = hook(conf + f"before-epilog-slurmctld {script}\n", "epilog-slurmctld")
    assert done.returncode != 0
    assert len(server.asked) == 2  # the devices come back whatever the site's script thought


def test_hosts_are_taken_out_with_the_reason_where_an_end_failed(
    hook: Hook, serve: Serve, tmp_path: Path
) -> None:
    serve(tmp_path / "s", b"HTTP/1.1 400 No\r\n\r\nm3 does not answer\n")
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\nprintf "%s\\n" "$SLURM_CONF" "$@" >{tmp_path}/said\n')
    scontrol.chmod(0o755)
    conf = f"server unix:{tmp_path}/s\ndrain {scontrol}\nslurm-conf /x/slurm.conf\n"
    assert hook(conf, SLURM_JOB_NODELIST="n[1-2]").returncode == 1
    assert not (tmp_path / "said").exists(), "a prolog that fails is no host's fault"
    assert hook(conf, "epilog-slurmctld", SLURM_JOB_NODELIST="n[1-2]").returncode == 1
    assert (tmp_path / "said").read_text().splitlines() == [
        "/x/slurm.conf",
        "update",
        "nodename=n[1-2]",
        "state=drain",
        "reason=podwright: job 7 refused (400): m3 does not answer",
    ]


#: Shows a job whose AdminComment is in a file, and writes what it is told into that file.
SCONTROL = """\
#!/bin/sh
echo "$*" >>@/told
case "$1" in
show) echo "   BatchFlag=$(cat @/batch) Reboot=0"; echo "   AdminComment=$(cat @/comment) " ;;
update) printf %s "${3#admincomment=}" >@/comment ;;
esac
"""


def late(folder: Path, *, comment: str = "", batch: str = "0") -> str:
    """Settings of a hook that tells people after a second."""
    scontrol = folder / "scontrol"
    scontrol.write_text(SCONTROL.replace("@", str(folder)))
    scontrol.chmod(0o755)
    (folder / "comment").write_text(comment)
    (folder / "batch").write_text(batch)
    return f"server unix:{folder}/s\nscontrol {scontrol}\nlate-seconds 1\nprolog-seconds 3\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("4 devices of pod16 are free for it", ""),
        ("try 1 of 3 failed: no", "try 1 of 3 failed: no; "),
        ("ipus=4 gcds=1 pod=pod16; try 2 of 3 failed: m1; m2", "try 2 of 3 failed: m1; m2; "),
        ("try 1 of 3 failed: no; waits in its prolog: x", "try 1 of 3 failed: no; "),
    ],
)
def test_a_prolog_that_waits_tells_the_job_and_its_srun(
    hook: Hook, tmp_path: Path, before: str, after: str
) -> None:
    done = hook(late(tmp_path, comment=before))
    assert done.returncode == 75
    show, notify, update = (tmp_path / "told").read_text().splitlines()
    assert show == "show job 7"
    assert notify.startswith("notify 7 podwright: job 7 waits in its prolog: its devices are not")
    assert "s: Connection refused" in notify or "s: No such file" in notify
    assert update.startswith(f"update jobid=7 admincomment={after}waits in its prolog: its devices")
    assert "It waits 2 s more" in update


@pytest.mark.parametrize(
    ("env", "whose", "notified"),
    [
        ({"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "2"}, "5_2", True),
        ({"SLURM_HET_JOB_ID": "6", "SLURM_HET_JOB_OFFSET": "0"}, "6+0", True),
        ({"SLURM_HET_JOB_ID": "6", "SLURM_HET_JOB_OFFSET": "1"}, "6+1", False),
    ],
)
def test_what_is_told_is_told_to_one_task_or_part(
    hook: Hook, tmp_path: Path, env: dict[str, str], whose: str, *, notified: bool
) -> None:
    hook(late(tmp_path), **env)
    told = (tmp_path / "told").read_text()
    assert f"show job {whose}\n" in told
    assert f"update jobid={whose} admincomment=" in told
    assert ("notify 7 " in told) is notified


def test_a_batch_job_has_no_srun_to_tell(hook: Hook, tmp_path: Path) -> None:
    hook(late(tmp_path, batch="1"))
    told = (tmp_path / "told").read_text()
    assert "notify" not in told
    assert "update jobid=7" in told


class Slow(Server):
    """Answers once the job's comment says that it waits; keeps what the comment was then."""

    def __init__(self, folder: Path, answer: bytes, words: str) -> None:
        self._comment, self._words = folder / "comment", words
        super().__init__(folder / "s", answer)

    def _run(self) -> None:
        peer, _ = self._socket.accept()
        self.asked.append(peer.recv(65536))
        poll("the notice", lambda: "waits in its prolog" in self._comment.read_text())
        peer.sendall(self._answer or b"")
        peer.close()
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            self.asked.append(peer.recv(65536))
            if self._words:
                self._comment.write_text(self._words)
            peer.sendall(self._answer or b"")
            peer.close()


@pytest.mark.parametrize("words", ["", "podwright: partition=p lease=l"])
def test_an_answer_that_comes_late_leaves_the_services_own_words(
    hook: Hook, tmp_path: Path, words: str
) -> None:
    """The second answer writes them anew, behind the notice."""
    server = Slow(tmp_path, OK, words)
    try:
        done = hook(late(tmp_path).replace("prolog-seconds 3", "prolog-seconds 300"))
    finally:
        server.close()
    assert done.returncode == 0
    assert len(server.asked) == 2
    assert (tmp_path / "comment").read_text() == words


def test_a_refusal_that_comes_late_stands_where_the_notice_stood(
    hook: Hook, tmp_path: Path
) -> None:
    said = b"HTTP/1.1 400 No\r\n\r\ntry 1 of 3 failed: m3 is down"
    server = Slow(tmp_path, said, "")
    try:
        done = hook(late(tmp_path).replace("prolog-seconds 3", "prolog-seconds 300"))
    finally:
        server.close()
    assert done.returncode == 1
    assert len(server.asked) == 1, "a refusal is counted, so it is not asked for twice"
    assert (tmp_path / "comment").read_text() == "try 1 of 3 failed: m3 is down"


def test_an_unknown_name_is_refused(hook: Hook) -> None:
    done = hook("server unix:/x\n", "other")
    assert done.returncode == 2
    assert "known: prolog-slurmctld, epilog-slurmctld" in done.stderr


def test_no_munge_is_said(hook: Hook, tmp_path: Path) -> None:
    conf = f"server tcp:127.0.0.1:1\nmunge-socket {tmp_path}/none\nprolog-seconds 1\n"
    done = hook(conf)
    assert done.returncode == 75
    assert "no MUNGE credential" in done.stderr


@pytest.mark.slurm
def test_over_tcp_a_munge_credential_carries_the_body(hook: Hook, serve: Serve) -> None:
    lab = SlurmLab(nodes=1)
    try:
        lab._start_munged()
        server = serve(None, OK)
        conf = f"server tcp:127.0.0.1:{server.port}\nmunge-socket {lab.folder}/munge.socket\n"
        done = hook(f"{conf}prolog-seconds 10\n")
        # Whoever listens there may say what it likes: no job begins by that.
        assert done.returncode == 75
        assert "is not Podwright's service by MUNGE, it said 200" in done.stderr
        head, _, body = server.asked[0].partition(b"\r\n\r\n")
        proof = head.partition(b"Authorization: MUNGE ")[2].split(b"\r\n")[0].decode()
        unmunge = ["unmunge", f"--socket={lab.folder}/munge.socket", "--metadata=/dev/null"]
        first, second = (lab.run(*unmunge, stdin=proof) for _ in range(2))
        assert (first.returncode, first.stdout.encode()) == (0, body)
        assert second.returncode == 17  # EMUNGE_CRED_REPLAYED: each proof counts once
    finally:
        lab.stop()


LIES = ("another's", "status", "text", "request", "spent", "not at all")


class Liar(MungeProofs):
    """Somebody at the service's address, or between, who has MUNGE as well, but not as root."""

    def __init__(self, munge_socket: str, lie: str) -> None:
        self._munge_socket, self._lie = munge_socket, lie
        self._own = Munge(munge_socket)
        self.answered: list[int] = []
        super().__init__(self._own, {0})

    async def signed(self, reply: Reply, shown: str) -> Reply:
        self.answered.append(reply.status)
        good = await super().signed(reply, shown)
        if self._lie == "status":
            return good._replace(status=200 if reply.status != 200 else 201)
        if self._lie == "text":
            return good._replace(body=b"PARTITION=other\n")
        if self._lie == "request":
            return await super().signed(reply, f"MUNGE {self._own.encode(b'other')}")
        if self._lie == "not at all":
            return reply
        if self._lie == "spent":
            self._own.decode(good.headers[-1][1].decode().partition(" ")[2])
            return good
        assert isinstance(reply.body, bytes)
        request = shown.partition(" ")[2].strip()
        said = f"{reply.status}\n{request}\n".encode() + reply.body
        made = await asyncio.to_thread(_by_alice, self._munge_socket, said)
        word = (b"authentication-info", b"MUNGE " + made)
        return reply._replace(headers=(*reply.headers, word))


Ended = tuple[list[int], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def lied_to(checked: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """By lie: what was answered, and how its hook ended. All at once, as each of them asks again
    until its time is over."""
    lab = SlurmLab(nodes=1)
    munge_socket = f"{lab.folder}/munge.socket"

    async def asked(lie: str) -> Ended:
        liar = Liar(munge_socket, lie)
        front = answered_by(Heard())
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        await front.start_remote(listener, liar)
        hook = hook_in(tmp_path_factory.mktemp("lied"), checked)
        conf = f"server tcp:127.0.0.1:{port}\nmunge-socket {munge_socket}\n"
        done = await asyncio.to_thread(hook, f"{conf}prolog-seconds 20\ntrust 64030\n")
        await front.finish(5)
        return liar.answered, done

    async def all_asked() -> dict[str, Ended]:
        return dict(zip(LIES, await asyncio.gather(*map(asked, LIES)), strict=True))

    try:
        lab._start_munged()
        return asyncio.run(all_asked())
    finally:
        lab.stop()


@pytest.mark.slurm
@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_is_not_the_services_own_lets_nothing_begin(
    lied_to: dict[str, Ended], lie: str
) -> None:
    answered, done = lied_to[lie]
    assert done.returncode == 75
    assert 200 in answered
    assert done.stdout == ""


@pytest.mark.slurm
def test_the_service_believes_the_hook_over_tcp(hook: Hook) -> None:
    """The compiled hook, real MUNGE and the service's own door, as on two hosts."""
    lab = SlurmLab(nodes=1)
    try:
        lab._start_munged()
        munge = f"{lab.folder}/munge.socket"

        async def asked() -> tuple[list[int], subprocess.CompletedProcess[str], str]:
            service = Heard()
            believed = proofs(Site(pods=(), listen="x", munge_socket=munge))
            front = answered_by(service)
            listener = socket.create_server(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            await front.start_remote(listener, believed)
            conf = f"server tcp:127.0.0.1:{port}\nmunge-socket {munge}\n"
            done = await asyncio.to_thread(hook, conf)
            spent = Munge(munge).encode(b"{}")
            said = []
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                head = "POST /slurm.v1/JobEnded HTTP/1.0\r\nContent-Length: 2\r\n"
                writer.write(f"{head}Authorization: MUNGE {spent}\r\n\r\n{{}}".encode())
                said.append((await reader.read()).decode())
                writer.close()
            await front.finish(5)
            return service.jobs, done, said[1]

        jobs, done, replayed = asyncio.run(asked())
        assert (done.returncode, jobs) == (0, [7])
        assert done.stdout == "PARTITION=p7\n"
        assert replayed.startswith("HTTP/1.1 401")
        assert "it was shown before" in replayed
    finally:
        lab.stop()


def _by_alice(munge_socket: str, payload: bytes) -> bytes:
    """A credential of a user's."""
    words = ["setpriv", "--reuid", ALICE, "--clear-groups", "munge", f"--socket={munge_socket}"]
    return subprocess.run(words, input=payload, capture_output=True, check=True).stdout.strip()


class Heard:
    """Stands for the service behind its door. jobs: who asked."""

    def __init__(self) -> None:
        self.jobs: list[int] = []

    async def begin_job(self, job: HookJob) -> str:
        self.jobs.append(job.job)
        return f"PARTITION=p{job.job}\n"

    async def end_job(self, job: HookJob) -> str:
        return ""

    failed = prove_step = end_job


def answered_by(heard: Heard) -> HookFront:
    front = HookFront()
    front.proving = front.working = heard  # type: ignore[assignment]
    return front


@pytest.fixture(scope="module")
def plugin() -> Iterator[Callable[[Release], Path]]:
    """Builds the SPANK plugin for a release; in a folder that both releases see."""
    made: list[Path] = []

    def make(release: Release) -> Path:
        out = new_folder()
        made.append(out)
        build(out, **({"SLURM_INCLUDE": release.headers} if release.headers else {}))
        return out / "spank_podwright.so"

    yield make
    for folder in made:
        remove(folder)


@pytest.mark.slurm
def test_options_reach_every_command_and_tasks_find_their_partition(
    slurm_lab: Callable[..., SlurmLab],
    every_release: Release,
    plugin: Callable[[Release], Path],
) -> None:
    library = plugin(every_release)
    prolog = "#!/bin/sh\necho $SLURM_JOB_ID $SPANK_IPUS $SPANK_NUM_REPLICAS >>@LAB@/out/prolog\n"
    lab = slurm_lab(
        nodes=2,
        release=every_release,
        conf={"PrologSlurmctld": "@LAB@/prolog.sh"},
        files={
            "plugstack.conf": f"required {library} host=pod port=8099\n",
            "prolog.sh": prolog,
        },
    )
    show = "echo $IPUOF_VIPU_API_PARTITION_ID $IPUOF_VIPU_API_HOST $IPUOF_VIPU_API_PORT"
    task = f"sh -c '{show} gcd $IPUOF_VIPU_API_GCD_ID'"
    script = f"#!/bin/sh\n#SBATCH --ipus=8\n#SBATCH --num-replicas 4\n{show}\nsrun -l {task}\n"
    job = lab.submit(script, "-n3", user=ALICE)
    lab.wait_over(job)
    lines = (lab.folder / "out" / f"slurm-{job}.out").read_text().splitlines()
    place = f"slurm_{job} pod 8099"
    assert lines[0] == place
    assert sorted(lines[1:]) == [f"{k}: {place} gcd {k}" for k in range(3)]
    done = lab.run("srun", "--ipus=2", "-n1", "sh", "-c", show, user=ALICE)
    assert done.stdout == f"slurm_{job + 1} pod 8099\n"
    done = lab.run("salloc", "--ipus=2", "-n2", "srun", "-l", "sh", "-c", show, user=ALICE)
    assert sorted(done.stdout.splitlines()) == [f"{k}: slurm_{job + 2} pod 8099" for k in (0, 1)]
    plain = lab.run("srun", "sh", "-c", show, user=ALICE)
    assert plain.stdout.strip() == ""
    written = lab.folder / "out" / "prolog"
    poll("prologs", lambda: len(written.read_text().splitlines()) == 4)
    assert written.read_text().splitlines()[:3] == [f"{job} 8 4", f"{job + 1} 2", f"{job + 2} 2"]


@pytest.mark.slurm
@pytest.mark.parametrize("value", ["-4", "four", "4x", "", "65537", "99999999999999999999"])
def test_numbers_that_are_none_are_refused_by_every_command(
    value: str, slurm_lab: Callable[..., SlurmLab], plugin: Callable[[Release], Path]
) -> None:
    lab = slurm_lab(
        nodes=1, files={"plugstack.conf": f"required {plugin(Release('oldest', None))}\n"}
    )
    for command in (["srun", "true"], ["sbatch", "--wrap=true"], ["salloc", "true"]):
        done = lab.run(command[0], f"--ipus={value}", command[1])
        assert done.returncode != 0
        assert "a whole number from 0 to 65536 is needed" in done.stderr
    assert lab.jobs() == {}
