"""Programs that try to get out of the jail, to harm what is outside, or to use up the machine.

Each defines attack(at).

at: {"secret": a file to read, "folder": a folder to write into, "pid": a process to harm, "port":
a listening port}.
An attack answers the secret, or True where it worked; what it did outside is looked at from outside as well.
"""
# ruff: noqa: E501

LIBC = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
ARM = platform.machine() == 'aarch64'
def call(x86, arm, *args):
    return libc.syscall(ctypes.c_long(arm if ARM else x86), *args)
"""

READS = {
    "open": "def attack(at): return open(at['secret']).read()",
    "os.open": "import os\ndef attack(at): return os.read(os.open(at['secret'], os.O_RDONLY), 100).decode()",
    "io.FileIO": "import io\ndef attack(at): return io.FileIO(at['secret']).read().decode()",
    "pathlib": "import pathlib\ndef attack(at): return pathlib.Path(at['secret']).read_text()",
    "linecache": "import linecache\ndef attack(at): return linecache.getline(at['secret'], 1).strip()",
    "fileinput": "import fileinput\ndef attack(at): return next(fileinput.input(at['secret']))",
    "dot dot": "import os\ndef attack(at): return open(os.path.dirname(os.__file__) + '/../' * 20 + "
               "at['secret']).read()",
    "proc root": "def attack(at): return open('/proc/self/root' + at['secret']).read()",
    "libc fopen": LIBC + """
def attack(at):
    libc.fopen.restype = ctypes.c_void_p
    file, room = libc.fopen(at['secret'].encode(), b'r'), ctypes.create_string_buffer(200)
    libc.fgets(room, 200, ctypes.c_void_p(file)) if file else 1 / 0
    return room.value.decode()""",
    "openat2": LIBC + """
def attack(at):
    how = (ctypes.c_uint64 * 3)()
    number = call(437, 437, -100, at['secret'].encode(), how, 24)
    return os.read(number, 100).decode()""",
    "symlink": """
import os
def attack(at):
    os.symlink(at['secret'], at['folder'] + '/link')
    return open(at['folder'] + '/link').read()""",
    "hard link": """
import os
def attack(at):
    os.link(at['secret'], at['folder'] + '/link')
    return open(at['folder'] + '/link').read()""",
    "import as a module": """
import importlib.machinery
def attack(at):
    return importlib.machinery.SourceFileLoader('m', at['secret']).get_data(at['secret']).decode()""",
    "chdir and relative": """
import os
def attack(at):
    os.chdir(os.path.dirname(at['secret']))
    return open(os.path.basename(at['secret'])).read()""",
    "mmap": "import mmap, os\n"
            "def attack(at): return mmap.mmap(os.open(at['secret'], 0), 0, prot=1)[:].decode()",
    "sendfile": LIBC + """
def attack(at):
    number = os.open(at['secret'], 0)
    return call(40, 71, 4, number, None, 100) > 0""",
    "descriptors left open": """
import os
def attack(at):
    for number in range(5, 300):
        try:
            return bool(os.fstat(number))
        except OSError:
            continue
    return False""",
    "the judge's memory": "def attack(at): return bool(open(f\"/proc/{at['pid']}/mem\", 'rb').fileno())",
    "process_vm_readv": LIBC + """
def attack(at):
    room = ctypes.create_string_buffer(8)
    vector = (ctypes.c_uint64 * 2)(ctypes.addressof(room), 8)
    return call(310, 270, at['pid'], vector, 1, vector, 1, 0) >= 0 or ctypes.get_errno() == 14""",
    "environment of another": "def attack(at): return len(open(f\"/proc/{at['pid']}/environ\", "
                              "'rb').read()) >= 0",
    "own environment": "import os\ndef attack(at): return bool({**os.environ})",
    "maps": "def attack(at): return bool(open('/proc/self/maps').read())",
    "installed packages": """
import os, sysconfig
def attack(at):
    home = sysconfig.get_path('stdlib') + '/site-packages'
    for folder, _, files in os.walk(home):
        for name in files:
            return bool(open(os.path.join(folder, name), 'rb').read(1)) or True
    return False""",
    "list the root": "import os\ndef attack(at): return bool(os.listdir('/'))",
    "glob": "import glob\ndef attack(at): return bool(glob.glob('/etc/*'))",
    "passwd": "import pwd\ndef attack(at): return pwd.getpwuid(0).pw_name == 'root'",
    "ctypes of a library outside": "import ctypes\ndef attack(at): return "
                                   "bool(ctypes.CDLL('libm.so.6')._name and open('/etc/ld.so.cache', 'rb'))",
}

WRITES = {
    "a new file": "def attack(at): return open(at['folder'] + '/x', 'w').write('x') == 1",
    "append": "def attack(at): return open(at['secret'], 'a').write('x') == 1",
    "truncate": "import os\ndef attack(at): return os.truncate(at['secret'], 0) is None",
    "unlink": "import os\ndef attack(at): return os.unlink(at['secret']) is None",
    "rename": "import os\ndef attack(at): return os.rename(at['secret'], at['folder'] + '/y') is None",
    "mkdir": "import os\ndef attack(at): return os.mkdir(at['folder'] + '/d') is None",
    "chmod": "import os\ndef attack(at): return os.chmod(at['secret'], 0o777) is None",
    "utime": "import os\ndef attack(at): return os.utime(at['secret'], (1, 1)) is None",
    "mkfifo": "import os\ndef attack(at): return os.mkfifo(at['folder'] + '/f') is None",
    "O_TMPFILE": "import os\ndef attack(at): return os.open(at['folder'], os.O_TMPFILE | os.O_RDWR) > 0",
    "shared memory": "import _posixshmem, os\n"
                     "def attack(at): return _posixshmem.shm_open('/postgrad', os.O_CREAT | os.O_RDWR) > 0",
    "memfd": "import os\ndef attack(at): return os.memfd_create('x') > 0",
    "xattr": "import os\ndef attack(at): return os.setxattr(at['secret'], 'user.x', b'x') is None",
    "io_uring": LIBC + "def attack(at): return call(425, 425, 1, (ctypes.c_uint64 * 32)()) >= 0",
    "a bytecode file": """
import os, py_compile
def attack(at):
    return bool(py_compile.compile(os.__file__, cfile=at['folder'] + '/c.pyc', doraise=True))""",
}

OTHERS = {
    "kill": "import os, signal\ndef attack(at): return os.kill(at['pid'], signal.SIGKILL) is None",
    "kill everybody": "import os\ndef attack(at): return os.kill(-1, 0) is None",
    "kill the group": "import os\ndef attack(at): return os.killpg(os.getppid(), 0) is None",
    "pidfd": "import os, signal\ndef attack(at): return signal.pidfd_send_signal(os.pidfd_open(at['pid']), "
             "signal.SIGKILL) is None",
    "tgkill": LIBC + "def attack(at): return call(234, 131, at['pid'], at['pid'], 9) == 0",
    "rt_sigqueueinfo": LIBC + "def attack(at): return call(129, 138, at['pid'], 9, (ctypes.c_uint64 "
                       "* 16)(9)) == 0",
    "fcntl SETOWN": LIBC + """
def attack(at):
    return any(libc.fcntl(3, *x) == 0 for x in ((8, at['pid']), (10, 9), (4, 0o20000)))""",
    "prlimit": "import resource as r\n"
               "def attack(at): return r.prlimit(at['pid'], r.RLIMIT_CPU, (0, 0)) is not None",
    "setpriority": "import os\ndef attack(at): return os.setpriority(os.PRIO_PROCESS, at['pid'], 19) is None",
    "sched_setaffinity": "import os\ndef attack(at): return os.sched_setaffinity(at['pid'], {0}) is None",
    "ptrace attach": LIBC + "def attack(at): return libc.ptrace(16, at['pid'], 0, 0) == 0",
    "fork": "import os\ndef attack(at):\n    if os.fork() == 0:\n        os._exit(0)\n    return True",
    "vfork": LIBC + "def attack(at): return call(58, 220, 17) >= 0",
    "clone3": LIBC + "def attack(at): return call(435, 435, (ctypes.c_uint64 * 11)(), 88) >= 0",
    "fork bomb": "import os\ndef attack(at):\n    for _ in range(50):\n        os.fork()\n    return True",
    "subprocess": "import subprocess\ndef attack(at): return subprocess.run(['/bin/true']).returncode == 0",
    "os.system": "import os\ndef attack(at): return os.system('true') == 0",
    "posix_spawn": "import os\ndef attack(at): return os.posix_spawn('/bin/true', ['true'], {}) > 0",
    "execve": "import os\ndef attack(at): os.execv('/bin/true', ['true'])",
    "execveat": LIBC + "def attack(at): return call(322, 281, -100, b'/bin/true', None, None, 0) == 0",
    "thread": "import threading\ndef attack(at): return threading.Thread(target=int).start() is None",
    "multiprocessing": "import multiprocessing as m\n"
                       "def attack(at): return m.get_context('fork').Process(target=int).start() is None",
    "connect": "import socket\n"
               "def attack(at): return bool(socket.create_connection(('127.0.0.1', at['port']), 1))",
    "udp": "import socket\ndef attack(at): return socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', "
           "('127.0.0.1', at['port'])) == 1",
    "listen": "import socket\ndef attack(at): return bool(socket.create_server(('127.0.0.1', 0)))",
    "unix socket": "import socket\ndef attack(at): return bool(socket.socketpair())",
    "raw syscall socket": LIBC + "def attack(at): return call(41, 198, 2, 1, 0) >= 0",
    "http": "import http.client\n"
            "def attack(at): return http.client.HTTPConnection('127.0.0.1', at['port']).connect() is None",
    "x32 socket": LIBC + "def attack(at): return libc.syscall(ctypes.c_long(0x40000000 + 41), 2, 1, 0) >= 0",
    "mount": LIBC
             + "def attack(at): return libc.mount(b'none', at['folder'].encode(), b'tmpfs', 0, None) == 0",
    "unshare": LIBC + "def attack(at): return libc.unshare(0x10000000) == 0",
    "setns": LIBC + "def attack(at): return libc.setns(3, 0) == 0",
    "chroot": "import os\ndef attack(at): return os.chroot(at['folder']) is None",
    "bpf": LIBC + "def attack(at): return call(321, 280, 0, (ctypes.c_uint64 * 16)(1), 128) >= 0",
    "keyctl": LIBC + "def attack(at): return call(248, 217, b'user', b'k', b'v', 1, -3) >= 0",
    "perf": LIBC + "def attack(at): return call(298, 241, (ctypes.c_uint64 * 16)(), 0, -1, -1, 0) >= 0",
    "userfaultfd": LIBC + "def attack(at): return call(323, 282, 0) >= 0",
    "a second filter": LIBC + "def attack(at): return libc.prctl(22, 1, 0, 0, 0) == 0",
    "setuid": "import os\ndef attack(at): return os.setuid(1) is None",
    "sethostname": "import socket\ndef attack(at): return socket.sethostname('x') is None",
    "set the clock": "import time\n"
                     "def attack(at): return time.clock_settime(time.CLOCK_REALTIME, time.time()) is None",
    "reboot": LIBC + "def attack(at): return call(169, 142, 1, 2, 3, 0) == 0",
    "raise a limit": "import resource as r\ndef attack(at):\n"
                     "    r.setrlimit(r.RLIMIT_NOFILE, (4096, 4096))\n    return True",
    "terminal injection": "import fcntl\ndef attack(at): return fcntl.ioctl(0, 0x5412, b'x') is not None",
    "pipe": "import os\ndef attack(at): return bool(os.pipe())",
    "frames of the child program": """
import sys
def attack(at):
    frame, found = sys._getframe(), []
    while frame:
        found += [repr(v) for v in (*frame.f_locals.values(), *frame.f_globals.values())]
        frame = frame.f_back
    return any('answer ' + 'is True' in text for text in found)""",
}

BOMBS = {
    "endless loop": "def attack(at):\n    while True: pass",
    "endless loop at load": "while True: pass",
    "sleep": "import time\ndef attack(at): time.sleep(1000)",
    "signals ignored": """
import signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): continue
def attack(at):
    while True:
        try: time.sleep(100)
        except BaseException: continue""",
    "memory": "def attack(at):\n    x = []\n    while True: x.append(bytearray(1 << 24))",
    "memory that is caught": """
def attack(at):
    x = []
    while True:
        try: x.append(bytearray(1 << 20))
        except MemoryError: continue""",
    "recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef attack(at): return attack(at)",
    "a deep value": "def attack(at):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x",
    "a cyclic value": "def attack(at):\n    x = []\n    x.append(x)\n    return x",
    "a doubling value": "def attack(at):\n    x = []\n    for _ in range(35): x = [x, x]\n    return x",
    "a long answer": "def attack(at): return 'x' * (1 << 27)",
    "printing": "def attack(at):\n    while True: print('x' * 10000)",
    "a big integer": "def attack(at): return 9 ** 9 ** 9",
    "many digits": "def attack(at): return 7 ** 3000000",
    "regex": "import re\ndef attack(at): return bool(re.match('(a+)+$', 'a' * 60 + 'b'))",
    "crash": "import ctypes\ndef attack(at): return ctypes.string_at(0)",
    "abort": "import os\ndef attack(at): os.abort()",
    "parser": "exec('(' * 100000)\ndef attack(at): return True",
    "flood of the pipe": "import os\ndef attack(at):\n    while True: os.write(4, b'\\xff' * 65536)",
    "silence after half a message": "import os, time\ndef attack(at):\n"
                                    "    os.write(4, b'\\x05')\n    time.sleep(1000)",
    "collisions": "def attack(at): return {i * (2**61 - 1): 0 for i in range(60000)}",
}

# Attacks that touch nothing but the canaries and themselves:
# these are tried without a jail too, where they must work.
HARMLESS = (
    *(f"read: {name}" for name in READS
      if name not in ("descriptors left open", "installed packages", "sendfile", "passwd",
                      "the judge's memory", "process_vm_readv", "environment of another")),
    *(f"write: {name}" for name in ("a new file", "append", "truncate", "unlink", "rename", "mkdir", "chmod",
                                    "mkfifo", "memfd")),
    *(f"other: {name}"
      for name in ("kill", "pidfd", "tgkill", "setpriority", "fork", "subprocess", "os.system", "posix_spawn",
                   "thread", "connect", "udp", "listen", "unix socket", "http", "pipe")),
)
ESCAPES = {f"{kind}: {name}": source
           for kind, group in (("read", READS), ("write", WRITES), ("other", OTHERS), ("bomb", BOMBS))
           for name, source in group.items()}
