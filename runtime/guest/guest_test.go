package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/hosttest"
)

func TestMain(m *testing.M) { hosttest.Main(m, guestItself, application) }

// guestItself makes this binary the program that runs a guest, and the first one in a virtual machine.
func guestItself() (bool, error) {
	did, code, err := Entry(context.Background(), os.Args)
	if did && err == nil {
		unix.Exit(code)
	}
	return did, err
}

// application is what runs in the guests: it asks for what a real-time program needs, and says where it is.
func application() (bool, error) {
	if len(os.Args) != 3 || os.Args[1] != "be-the-application" {
		return false, nil
	}
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 80}
	if err := errors.Join(unix.SchedSetAttr(0, &attr, 0), unix.Mlockall(unix.MCL_CURRENT)); err != nil {
		return true, err
	}
	links, err := os.ReadDir("/sys/class/net")
	if err != nil {
		return true, err
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name())
	}
	fmt.Fprintf(os.Stdout, "pid %d\r\nlinks %v\n%s", os.Getpid(), names, os.Args[2])
	fmt.Fprintln(os.Stderr, "and an error")
	unix.Exit(7)
	return true, nil
}

// inGuest runs the application in a guest, and returns its output.
func inGuest(t *testing.T, g Guest) (stdout string, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g.Dir = t.TempDir()
	argv := Command(self, g, []string{self, "be-the-application", "ünïcode, and a comma"})
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
		t.Fatalf("%v: %s", err, said.String())
	}
	if said.String() != "and an error\n" {
		t.Errorf("standard error: %q", said.String())
	}
	return out.String(), g.Dir
}

func installed(program, pkg string) hosttest.Feature {
	return func() string {
		if _, err := exec.LookPath(program); err != nil {
			return "needs " + program + ": apt-get install " + pkg
		}
		return ""
	}
}

func TestContainer(t *testing.T) {
	hosttest.Need(t, hosttest.Root, installed(Crun, Crun))
	out, dir := inGuest(t, Guest{Runtime: Container})
	if want := "pid 1\r\nlinks [lo]\nünïcode, and a comma"; out != want {
		t.Errorf("%q, expected %q", out, want)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "state")); err != nil || len(left) != 0 {
		t.Errorf("crun left %v (%v)", left, err)
	}
	if facts, err := Facts(dir); facts != nil || err != nil {
		t.Error(facts, err)
	}
}

// A container that serves is in the network of its caller, here a new one, may change it if it is allowed to,
// and writes to its folder only.
func TestServe(t *testing.T) {
	hosttest.Need(t, hosttest.Root, installed(Crun, Crun), hosttest.Program("unshare"), hosttest.Program("ip"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, may := range [][]string{nil, {"NET_ADMIN"}} {
		g := Guest{Runtime: Container, Dir: t.TempDir(), Serve: &Serve{Capabilities: may, Folder: t.TempDir()}}
		argv := append([]string{"--net"}, Command(self, g, []string{"sh", "-c", "ip link add br7 type bridge; " +
			"echo $(id -un) $(ls /sys/class/net); touch /usr/x; echo kept >" + g.Serve.Folder + "/file"})...)
		out, err := exec.CommandContext(t.Context(), "unshare", argv...).Output()
		want := "root lo\n"
		if len(may) > 0 {
			want = "root br7 lo\n"
		}
		kept, kerr := os.ReadFile(filepath.Join(g.Serve.Folder, "file"))
		if string(out) != want || err != nil || kerr != nil || string(kept) != "kept\n" {
			t.Errorf("%v: %q, %q; %v, %v", may, out, kept, err, kerr)
		}
		if _, err = os.Stat("/usr/x"); err == nil {
			t.Error("it wrote to the host's /usr")
		}
	}
}

// kernelForTests is that of the host, or of $ISOLANE_GUEST_KERNEL.
func kernelForTests(t *testing.T) string {
	t.Helper()
	if name := os.Getenv("ISOLANE_GUEST_KERNEL"); name != "" {
		return name
	}
	name, err := FindKernel(os.DirFS("/"))
	if err != nil {
		t.Skip("skipped: " + err.Error() + ": apt-get install " + KernelPackage)
	}
	return "/" + name
}

func TestVM(t *testing.T) {
	hosttest.Need(t, hosttest.Root, installed(QEMU, QEMUPackage))
	out, dir := inGuest(t, Guest{Runtime: VM, Kernel: kernelForTests(t), CPUs: 1, Bind: true})
	if !strings.HasSuffix(out, "\nünïcode, and a comma") || !strings.HasPrefix(out, "pid ") ||
		!strings.Contains(out, "\r\nlinks [lo]\n") {
		t.Errorf("%q", out)
	}
	facts, err := Facts(dir)
	if err != nil || facts["virtualCPUs"] != "1" || facts[Accelerator] == "" || facts["guestKernel"] == "" {
		t.Error(facts, err)
	}
	t.Log(facts)
}

func TestFindKernel(t *testing.T) {
	root := fstest.MapFS{}
	if _, err := FindKernel(root); !errors.Is(err, ErrNoKernel) || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	for _, version := range []string{"6.1.0-9-cloud-amd64", "6.1.0-56-cloud-amd64", "5.10.0-99-amd64"} {
		root["boot/vmlinuz-"+version] = &fstest.MapFile{}
	}
	if got, err := FindKernel(root); err != nil || got != "boot/vmlinuz-6.1.0-56-cloud-amd64" {
		t.Error(got, err)
	}
}

func TestNamedKernel(t *testing.T) {
	root := fstest.MapFS{"srv/kernel": &fstest.MapFile{}}
	if got, err := (Guest{Kernel: "/srv/kernel"}).FileOfKernel(root); err != nil || got != "/srv/kernel" {
		t.Error(got, err)
	}
	_, err := Guest{Kernel: "/srv/other"}.FileOfKernel(root)
	if err == nil || !strings.Contains(err.Error(), "kernel") {
		t.Error(err)
	}
}

func TestEntry(t *testing.T) {
	for _, args := range [][]string{{"isolane"}, {"isolane", "probe"}, {"/init", firstProgram}} {
		if did, _, err := Entry(t.Context(), args); did || err != nil {
			t.Error(args, did, err)
		}
	}
	program := []string{"/bin/true"}
	for settings, want := range map[string]string{
		`{"runtime":"jail"}`:            `"jail"`,
		`{"runtime":"vm","memroy":1}`:   "memroy",
		`{"runtime":"vm","memory":"x"}`: "memory",
		``:                              "EOF",
	} {
		did, code, err := Entry(t.Context(), append([]string{"isolane", entry, settings}, program...))
		if !did || code == 0 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %t %d %v", settings, did, code, err)
		}
	}
	if did, _, err := Entry(t.Context(), []string{"isolane", entry, "{}"}); !did || err == nil {
		t.Error("no command is taken")
	}
}

// cpio reads what is written.
func TestInitramfs(t *testing.T) {
	hosttest.Need(t, installed("cpio", "cpio"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "initrd")
	if err = initramfs(t.Context(), file, []string{"/bin/sh", "a b", "ü"}); err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	unpack := exec.Command("cpio", "-idm", "--quiet", "-F", file)
	unpack.Dir = into
	out, err := unpack.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, from := range map[string]string{"init": self, "bin/sh": "/bin/sh"} {
		got, gerr := os.ReadFile(filepath.Join(into, name))
		want, werr := os.ReadFile(from)
		if gerr != nil || werr != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from %s (%v, %v)", name, from, gerr, werr)
		}
	}
	got, err := os.ReadFile(filepath.Join(into, commandFile))
	if want := `["/bin/sh","a b","ü"]`; err != nil || string(got) != want {
		t.Errorf("%s %v", got, err)
	}
	// The shell starts with the libraries of the archive alone.
	hosttest.Need(t, hosttest.Root)
	out, err = exec.Command("chroot", into, "/bin/sh", "-c", "echo runs").CombinedOutput()
	if err != nil || string(out) != "runs\n" {
		t.Errorf("%s %v", out, err)
	}
}
