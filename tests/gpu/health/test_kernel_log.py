"""The words of the kernel's log decide about a GPU, and a number never does alone."""

from __future__ import annotations

import pytest

from tests.gpu.health.node import LOADED, Node

NVLINK_STARTS = "6,5,2000000,-;nvidia-nvlink: Nvlink Core is being initialized, major number 511\n"
FALLEN = (
    "NVRM: The NVIDIA GPU 0000:40:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
    "NVRM: The NVIDIA probe routine failed for 1 device(s).",
)
XID = "NVRM: Xid (PCI:0000:40:00): "
AMD = "amdgpu 0000:40:00.0: amdgpu: "
CHANGED = "154, GPU recovery action changed from 0x0 (None) to "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "fallen off the bus"),
        (f"{CHANGED}0x1 (GPU Reset Required)", "the driver asks for: GPU Reset Required"),
        (f"{CHANGED}0x2 (Node Reboot Required)", "the driver asks for: Node Reboot Required"),
        (f"{CHANGED}0x2 (OS Reboot)", "the driver asks for: OS Reboot"),
        (f"{CHANGED}0x4 (Drain and Reset)", "the driver asks for: Drain and Reset"),
        ("95, pid=7, name=train, Uncontained: FBHUB (0x1). RST: Yes, D-RST: No", "needs a reset"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x016415c6 0x00000000)", "fatal error"),
        ("74, pid=7, name=train, NVLink: fatal error detected on link 6", "fatal error"),
        ("48, pid=7, name=train, An uncorrectable double bit error (DBE)", "uncorrected memory"),
    ],
)
def test_words_of_nvidia_that_keep_jobs_away(node: Node, text: str, said: str) -> None:
    node.log(f"{XID}{text}")
    (finding,) = node.found()
    assert finding.startswith("sick kernel: GPU 3 ")
    assert said in finding


@pytest.mark.parametrize(
    "text",
    [
        "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001)",
        "149, NETIR_LINK_EVT Non-fatal XC0 i0 Link 13 (0x0409a0c2)",
        "94, pid=7, name=train, Contained: SM (0x1). RST: No, D-RST: No",
        "45, pid=7, name=train, channel 0x2 caused by previous Xid 149",
        "31, pid=7, name=train, MMU Fault: ENGINE GRAPHICS faulted @ 0x7f. Fault is of type PDE",
        "13, pid=7, name=train, Graphics SM Warp Exception on (GPC 0, TPC 1): Out Of Range",
        "43, pid=7, name=train, Ch 00000008",
        "45, pid='<unknown>', name=<unknown>, Ch 00000008",
        "32, Channel ID 00000000",
        "63, pid=7, name=x, Row Remapper: New row marked for remapping, reset gpu to activate.",
        "9999, something that nobody knows",
        # A user calls a program so.
        "31, pid=7, name=RST: Yes, MMU Fault: ENGINE GRAPHICS",
        "31, pid=7, name=a, Fatal,x, MMU Fault: ENGINE GRAPHICS",
    ],
)
def test_words_of_nvidia_that_keep_no_job_away(node: Node, text: str) -> None:
    node.log(f"{XID}{text}")
    (finding,) = node.found()
    assert finding.startswith("look kernel: GPU 3 ")
    assert node.report().fit


@pytest.mark.parametrize("name", ["x", "python3", "pt_main_thread", "cuda_plot_k32_v", "a, b", ""])
@pytest.mark.parametrize(
    "words",
    [
        "Ch 00000008",
        "Ch 00000008, intr 00000000. MMU Fault: ENGINE CE2 HUBCLIENT_CE0 faulted @ 0x7f29_5b8c9000",
        "Graphics SM Global Exception on (GPC 7, TPC 7, SM 0): Multiple Warp Errors",
        "Contained: SM (0x1). RST: No, D-RST: No",
    ],
)
def test_what_a_program_did_is_known_without_the_driver(node: Node, name: str, words: str) -> None:
    """This GPU is not one of the driver's, so nobody can be asked about it."""
    node.log(f"NVRM: Xid (PCI:0000:F0:00): 43, pid=1234, name={name}, {words}")
    assert node.report().fit is True


def test_a_driver_takes_its_request_back(node: Node) -> None:
    asked = f"{XID}{CHANGED}0x1 (GPU Reset Required)"
    node.log(
        asked, f"{XID}154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    )
    assert node.found() == []
    node.log(asked, f"{XID}{CHANGED}0x5 (Recover IMEX Domain)")
    assert node.found() == ["look kernel: GPU 3 the driver asks for: Recover IMEX Domain"]


def test_a_silent_gsp_counts_unless_the_driver_now_asks_for_nothing(node: Node) -> None:
    node.log(
        f"{XID}119, pid=7, name=train, Timeout after 6s of waiting for RPC response from GPU3 GSP!"
    )
    assert node.found()[0].startswith("look kernel: GPU 3 its system processor (GSP)")
    node.gpu(3, 'recovery = "reset"')
    assert not node.report().fit
    assert "sick kernel: GPU 3 its system processor (GSP) does not answer (Xid 119)" in node.found()


@pytest.mark.parametrize(
    "text",
    [
        "62, pid='<unknown>', name=<unknown>, 2023b230 20238a3a 2023e8b6 2023eac4 2023ec3c",
        "109, pid=7, name=train, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
        "51, BAD_TSG encountered on runlist: 0 with error code: 4",
    ],
)
def test_words_that_say_nothing_leave_it_to_the_driver(node: Node, text: str) -> None:
    node.log(f"{XID}{text}")
    assert node.report().fit, "the driver asks for nothing"
    node.gpu(3, 'recovery = ""')
    assert node.report().fit is None, "the driver does not tell"


def test_a_slice_of_a_gpu_is_named_by_its_gpu(node: Node) -> None:
    node.log("NVRM: Xid (PCI:0000:40:00 GPU-I:05): 95, pid=7, name=x, Uncontained: FBHUB. RST: Yes")
    assert node.found() == ["sick kernel: GPU 3 needs a reset (Xid 95)"]


def test_an_assertion_that_asks_for_a_reset_counts_though_it_names_no_gpu(node: Node) -> None:
    node.log(
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] "
        "(0x00000062) returned from status @ kernel_channel.c:2827"
    )
    assert node.found() == ["sick kernel: a GPU needs a reset"]


@pytest.mark.parametrize("beginning", ["", NVLINK_STARTS])
@pytest.mark.parametrize("texts", [FALLEN, ("\\x0a".join(FALLEN[:3]), FALLEN[3])])
def test_what_the_driver_saw_while_it_was_loaded_stays(
    node: Node, beginning: str, texts: tuple[str, ...]
) -> None:
    """It prints that it is loaded once it has looked at its GPUs."""
    loaded = LOADED.partition(";")[2].strip()
    node.log(*texts, loaded, before=LOADED + beginning)
    assert node.found() == ["sick kernel: GPU 3 has fallen off the bus"]
    node.log(*texts, loaded, loaded, before=LOADED + beginning)
    assert node.found() == [], "it was loaded once more, and found all"


def test_lines_from_before_the_driver_was_loaded_do_not_count(node: Node) -> None:
    ill = f"{XID}79, GPU has fallen off the bus."
    node.log(ill, LOADED.partition(";")[2].strip())
    assert node.found() == []
    node.log(ill, NVLINK_STARTS.partition(";")[2].strip())
    assert node.found() == []
    node.log(ill)
    assert node.report(since=3.9).fit is False
    assert node.report(since=4.1).findings == ()


def test_a_gpu_that_the_driver_no_longer_lists_is_named_by_its_address(node: Node) -> None:
    node.log("NVRM: Xid (PCI:0000:F0:00): 79, GPU has fallen off the bus.")
    assert node.found() == ["sick kernel: GPU at 0000:f0:00.0 has fallen off the bus (Xid 79)"]


def test_many_harmless_lines_are_few_findings(node: Node) -> None:
    node.log(*(f"{XID}{number}, pid=7, name=x, words" for number in range(500, 520)))
    assert len(node.found()) == 4


def test_only_fatal_sxids_of_nvswitches_count(node: Node) -> None:
    """Lines as NVIDIA's driver writes them."""
    node.log(
        "nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, Fatal, Link 28 LTSSM Fault Up",
        "nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, Severity 5 Engine instance 28",
        "nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 19084, Non-fatal, Link 10 AN1 Heartbeat",
    )
    assert node.found() == [
        "sick kernel: NVSwitch 0 SXid 20034 Fatal, Link 28 LTSSM Fault Up",
        "look kernel: NVSwitch 3 SXid 19084 Non-fatal, Link 10 AN1 Heartbeat",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("uncorrectable hardware errors detected in umc block", "uncorrected hardware error"),
        ("socket: 0, die: 0, 2 new uncorrectable hardware errors detected", "uncorrected hardware"),
        ("{1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", "uncorrected"),
        ("GPU reset begin!", "a reset has begun and not ended"),
        ("GPU reset(3) failed", "its reset failed"),
        ("GPU Recovery Failed: -110", "its reset failed"),
        ("GPU reset end with ret = -62", "its reset failed"),
        ("device lost from bus!", "has fallen off the bus"),
        ("Fatal error during GPU init", "did not start"),
    ],
)
def test_words_of_amd_that_keep_jobs_away(node: Node, text: str, said: str) -> None:
    node.log(f"{AMD}{text}")
    (finding,) = node.found()
    assert finding.startswith("sick kernel: GPU 3 ")
    assert said in finding


@pytest.mark.parametrize(
    "text",
    [
        "0 uncorrectable hardware errors detected in total in gfx block",
        "12 correctable hardware errors detected in total in umc block",
        "GPU reset succeeded, trying to resume",
        "Process uncorrectable pid 7 thread GPU reset begin pid 8",
        "normal performance level, RMA",
        "GPU fault detected: 147 for process RMA pid 7 thread RMA pid 8",
    ],
)
def test_harmless_words_of_amd_are_no_finding(node: Node, text: str) -> None:
    node.log(f"{AMD}{text}")
    assert node.found() == []


def test_a_reset_of_amd_that_worked_ends_it(node: Node) -> None:
    hung = (
        f"{AMD}ring gfx_0.0.0 timeout, signaled seq=100, emitted seq=102",
        f"{AMD}GPU reset begin!",
        f"{AMD}MODE1 reset",
        f"{AMD}GPU reset succeeded, trying to resume",
    )
    node.log(*hung)
    assert not node.report().fit
    node.log(*hung, f"{AMD}GPU reset(2) succeeded!")
    assert [text[:4] for text in node.found()] == ["look"]
    other = f"{AMD}Exceeding the bad_page_threshold:256, disabling the GPU."
    node.log(other, f"{AMD}GPU reset(2) succeeded!")
    assert not node.report().fit
    kept = f"{AMD}Saved bad pages(260) reaches threshold value(256)."
    node.log(kept, *hung, f"{AMD}GPU reset(2) succeeded!")
    assert not node.report().fit
    node.log(*hung, "[drm] amdgpu kernel modesetting enabled.")
    assert node.found() == []
