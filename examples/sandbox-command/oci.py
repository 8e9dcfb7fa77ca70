# Runs a program in a container of its own, by an OCI runtime: oci.py RUNTIME FOLDER PROGRAM [ARGUMENT...]. The folder is the program's /tmp. The limits and
# what the container sees are here, and yours to change. There is no filter of system calls: put your profile at linux.seccomp, or take gVisor.
import json
import os
import sys

runtime, folder, argv = sys.argv[1], sys.argv[2], sys.argv[3:]
NOBODY = 65534

for path, _, names in os.walk(folder):
    for name in [path] + [os.path.join(path, n) for n in names]:
        os.chown(name, NOBODY, NOBODY, follow_symlinks=False)
# The folder stays root's and is sticky, so that the program cannot touch the bundle, which the runtime reads when it ends.
os.chown(folder, 0, NOBODY)
os.chmod(folder, 0o1770)
bundle = os.path.join(folder, ".bundle")
os.mkdir(bundle, 0o700)
os.mkdir(os.path.join(bundle, "rootfs"), 0o755)


def shown(path, at, *options):
    return {"type": "bind", "source": path, "destination": at, "options": ["rbind", "nosuid", "nodev", *options]}


mounts = [{"type": "proc", "source": "proc", "destination": "/proc"}, {"type": "tmpfs", "source": "tmpfs", "destination": "/dev", "options": ["nosuid", "mode=755"]}]
mounts += [shown(path, path, "ro") for path in ("/usr", "/bin", "/lib", "/lib64") if os.path.exists(path)] + [shown(folder, "/tmp")]
limits = {"RLIMIT_CPU": 600, "RLIMIT_FSIZE": 64 << 20, "RLIMIT_NOFILE": 64, "RLIMIT_CORE": 0}
spec = {
    "ociVersion": "1.0.2", "hostname": "sandbox", "root": {"path": "rootfs", "readonly": True}, "mounts": mounts,
    "process": {
        "args": argv, "cwd": "/tmp", "user": {"uid": NOBODY, "gid": NOBODY}, "noNewPrivileges": True,
        "env": ["PATH=/usr/bin:/bin", "HOME=/tmp", "TMPDIR=/tmp", "LANG=C.UTF-8"],
        "rlimits": [{"type": name, "soft": value, "hard": value} for name, value in limits.items()],
    },
    "linux": {
        "namespaces": [{"type": name} for name in ("pid", "network", "ipc", "uts", "mount")],
        "resources": {"memory": {"limit": 512 << 20}, "pids": {"limit": 32}},
        "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sysrq-trigger"],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"],
    },
}
with open(os.path.join(bundle, "config.json"), "w") as f:
    json.dump(spec, f)
own = {"runsc": ["--network=none", "--ignore-cgroups"]}.get(os.path.basename(runtime), [])
third = ["--pass-fd=3:3"] if os.path.basename(runtime) == "runsc" else ["--preserve-fds=1"]  # Weir's, by which it talks to the program
os.execvp(runtime, [runtime, *own, "--root", os.path.join(bundle, "state"), "run", *third, "--bundle", bundle, os.path.basename(folder)])
