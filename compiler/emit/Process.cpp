//===- Process.cpp - Runs one program with a time limit --------------------===//
#include "compiler/emit/Process.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cfc {
namespace {
using Clock = std::chrono::steady_clock;
using End = ProcessResult::End;

//===-- What a signal handler must know ------------------------------------===//

/// One running program. Written before `group` is set, read by the handler only after.
struct Slot {
  std::atomic<pid_t> group{0};
  std::atomic<bool> taken{false};
  char outputFile[PATH_MAX];
};
Slot slots[64];
const int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction previousActions[std::size(kSignals)];
std::atomic<bool> interrupted{false};
std::mutex guardMutex;
int guardUsers = 0;

/// Ends every running program, then lets whoever was responsible before decide about this process.
/// Uses only async-signal-safe functions.
void onSignal(int signal) {
  int savedErrno = errno;
  interrupted = true;
  for (Slot &slot : slots)
    if (pid_t group = slot.group) {
      kill(-group, SIGKILL);
      if (slot.outputFile[0])
        unlink(slot.outputFile);
    }
  for (size_t i = 0; i != std::size(kSignals); ++i)
    if (kSignals[i] == signal)
      sigaction(signal, &previousActions[i], nullptr);
  raise(signal); // delivered when this handler returns
  errno = savedErrno;
}

/// While one exists, onSignal is installed for the signals that nobody ignores.
class SignalGuard {
public:
  SignalGuard() {
    std::lock_guard lock(guardMutex);
    if (guardUsers++)
      return;
    interrupted = false;
    struct sigaction action = {};
    action.sa_handler = onSignal;
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i != std::size(kSignals); ++i) {
      sigaction(kSignals[i], nullptr, &previousActions[i]);
      if (previousActions[i].sa_handler != SIG_IGN)
        sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~SignalGuard() {
    std::lock_guard lock(guardMutex);
    if (--guardUsers)
      return;
    for (size_t i = 0; i != std::size(kSignals); ++i)
      sigaction(kSignals[i], &previousActions[i], nullptr);
  }
};

/// A slot for one program, waiting for a free one.
class SlotLease {
public:
  explicit SlotLease(const std::string &outputFile) {
    for (;; usleep(1000))
      for (Slot &candidate : slots)
        if (!candidate.taken.exchange(true)) {
          slot = &candidate;
          std::strncpy(slot->outputFile, outputFile.c_str(), PATH_MAX - 1);
          return;
        }
  }
  ~SlotLease() {
    slot->group = 0;
    slot->taken = false;
  }
  Slot *slot;
};

//===-- File descriptors ---------------------------------------------------===//

struct Fd {
  int fd = -1;
  Fd() = default;
  explicit Fd(int fd) : fd(fd) {}
  Fd(const Fd &) = delete;
  ~Fd() { close(); }
  void close() {
    if (fd >= 0)
      ::close(fd);
    fd = -1;
  }
};

/// A file without a name that holds `text`, read from its start.
int textFile(const std::string &text) {
  int fd = memfd_create("input", MFD_CLOEXEC);
  for (size_t done = 0; fd >= 0 && done < text.size();) {
    ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      close(fd);
      return -1;
    }
    done += n;
  }
  lseek(fd, 0, SEEK_SET);
  return fd;
}

//===-- The child ----------------------------------------------------------===//

/// Between fork and exec: only async-signal-safe functions. Tells errno through `failure` if exec fails.
[[noreturn]] void becomeProgram(char *const *argv, int input, int output, int failure, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent)
    _exit(127); // the parent died before it could take us along
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(input, 0) >= 0 && dup2(output, 1) >= 0 && dup2(output, 2) >= 0)
    execv(argv[0], argv);
  int error = errno;
  if (write(failure, &error, sizeof(error)) < 0)
    _exit(126);
  _exit(127);
}

//===-- The parent ---------------------------------------------------------===//

int millisecondsUntil(Clock::time_point deadline) {
  auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : left > INT_MAX ? INT_MAX : int(left);
}

/// Reads until the program closes its output. False when the time is over.
bool readOutput(int fd, std::string &output, Clock::time_point deadline) {
  constexpr size_t kMost = 64 << 10;
  for (;;) {
    pollfd wait = {fd, POLLIN, 0};
    int ready = poll(&wait, 1, millisecondsUntil(deadline));
    if (ready < 0 && errno == EINTR)
      continue;
    if (ready == 0)
      return false;
    char buffer[4096];
    ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return true;
    output.append(buffer, std::min<size_t>(n, kMost - std::min(kMost, output.size())));
  }
}

/// Waits until the program has ended, without reaping it, so that its group stays ours. False when time is
/// over.
bool waitForEnd(pid_t pid, Clock::time_point deadline) {
  for (;; usleep(500)) {
    siginfo_t info = {};
    if (waitid(P_PID, pid, &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid == pid)
      return true;
    if (Clock::now() >= deadline)
      return false;
  }
}

} // namespace

ProcessResult runProcess(const std::vector<std::string> &argv, const std::string &input,
                         const std::string &outputFile, std::chrono::milliseconds timeout) {
  ProcessResult result;
  auto notStarted = [&] {
    result.end = End::NotStarted;
    result.code = errno;
    return result;
  };
  std::vector<char *> arguments;
  for (const std::string &argument : argv)
    arguments.push_back(const_cast<char *>(argument.c_str()));
  arguments.push_back(nullptr);

  Fd inputFd(textFile(input));
  int outputs[2], failures[2];
  if (inputFd.fd < 0 || pipe2(outputs, O_CLOEXEC) != 0)
    return notStarted();
  Fd outputRead(outputs[0]), outputWrite(outputs[1]);
  if (pipe2(failures, O_CLOEXEC) != 0)
    return notStarted();
  Fd failureRead(failures[0]), failureWrite(failures[1]);

  SignalGuard guard;
  SlotLease lease(outputFile);
  auto deadline = Clock::now() + timeout;
  // No signal may come between the fork and the note of it.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_t parent = getpid(), pid = fork();
  if (pid == 0)
    becomeProgram(arguments.data(), inputFd.fd, outputWrite.fd, failureWrite.fd, parent);
  if (pid > 0) {
    setpgid(pid, pid); // both sides do it: the group must exist before anyone kills it
    lease.slot->group = pid;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0)
    return notStarted();
  outputWrite.close();
  failureWrite.close();

  int execError = 0;
  if (read(failureRead.fd, &execError, sizeof(execError)) == sizeof(execError)) {
    waitpid(pid, nullptr, 0);
    errno = execError;
    return notStarted();
  }
  bool isDone = readOutput(outputRead.fd, result.output, deadline) && waitForEnd(pid, deadline);
  lease.slot->group = 0;
  kill(-pid, SIGKILL); // whatever is left of the group
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  if (interrupted)
    result.end = End::Interrupted;
  else if (!isDone)
    result.end = End::TimedOut;
  else if (WIFSIGNALED(status))
    result.end = End::Killed, result.code = WTERMSIG(status);
  else
    result.end = End::Exited, result.code = WEXITSTATUS(status);
  return result;
}

} // namespace cfc
