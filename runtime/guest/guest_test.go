package guest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
)

func TestMain(m *testing.M) { hosttest.Main(m, guestItself, application, answers) }

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
	hosttest.Need(t, hosttest.Root, installed(crun, crun))
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
	hosttest.Need(t, hosttest.Root, installed(crun, crun), hosttest.Program("unshare"), hosttest.Program("ip"))
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
	name, err := findKernel(os.DirFS("/"))
	if err != nil {
		t.Skip("skipped: " + err.Error() + ": apt-get install " + KernelPackage)
	}
	return "/" + name
}

func TestVM(t *testing.T) {
	hosttest.Need(t, hosttest.Root, installed(QEMU, qemuPackage))
	out, dir := inGuest(t, Guest{Runtime: VM, Kernel: kernelForTests(t), CPUs: 1, Bind: true})
	if !strings.HasSuffix(out, "\nünïcode, and a comma") || !strings.HasPrefix(out, "pid ") ||
		!strings.Contains(out, "\r\nlinks [lo]\n") {
		t.Errorf("%q", out)
	}
	facts, err := Facts(dir)
	if err != nil || facts["virtualCPUs"] != "1" || facts[accelerator] == "" || facts["guestKernel"] == "" {
		t.Error(facts, err)
	}
	t.Log(facts)
}

// answers is a program that serves: it says what it sees of its machine to whom connects.
func answers() (bool, error) {
	if len(os.Args) != 3 || os.Args[1] != "answer-at" {
		return false, nil
	}
	l, err := net.Listen("tcp", os.Args[2])
	if err != nil {
		return true, err
	}
	fmt.Fprintln(os.Stdout, "listens")
	for {
		c, err := l.Accept()
		if err != nil {
			return true, err
		}
		first, err := task.ReadStat(os.DirFS("/"), task.Dir(1))
		device, derr := net.InterfaceByName("eth0")
		if err = errors.Join(err, derr); err == nil {
			fmt.Fprintf(c, "pid 1 is %s, %s has MTU %d", first.Comm, device.HardwareAddr, device.MTU)
		}
		if err = errors.Join(err, c.Close()); err != nil {
			return true, err
		}
	}
}

// A virtual machine that serves takes over the network of its caller: who asks at that address hears of the
// machine, at the same MAC address. When one of its programs ends, that is told.
func TestServeInVM(t *testing.T) {
	hosttest.Need(t, hosttest.Root, installed(QEMU, qemuPackage))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kernel := kernelForTests(t)
	release := strings.TrimPrefix(filepath.Base(kernel), "vmlinuz-")
	if dep := filepath.Join(filepath.Dir(kernel), "../lib/modules", release, "modules.dep"); !exists(dep) {
		t.Skip("skipped: needs " + dep)
	}
	runtime.LockOSThread() // it ends with the test
	outside, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	const inside = "isolane-islt-machine"
	here, err := netns.NewNamed(inside)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if derr := netns.DeleteNamed(inside); derr != nil {
			t.Error(derr)
		}
	})
	mac := net.HardwareAddr{2, 0x15, 1, 0xa0, 9, 2}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = "eth0", mac, 1400
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: "out", PeerNamespace: netlink.NsFd(outside)}
	if err = netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	up(t, "eth0", "198.18.9.2/24")
	tap := netdev.TapStep(inside, "eth0")
	if err = netdev.Ops()[tap.Kind].Write(t.Context(), tap, tap.After); err != nil {
		t.Fatal(err)
	}
	serve := func(programs ...Program) (*exec.Cmd, *bufio.Reader, *bytes.Buffer) {
		g := Guest{Runtime: VM, Kernel: kernel, CPUs: 1, Dir: t.TempDir(),
			Machine: &Machine{Programs: programs, Taps: map[string]string{"eth0": tap.After}}}
		argv := Command(self, g, nil)
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, perr := cmd.StdoutPipe()
		if perr = errors.Join(perr, cmd.Start()); perr != nil {
			t.Fatal(perr)
		}
		return cmd, bufio.NewReader(out), &said
	}
	answer := Program{Argv: []string{self, "answer-at", "198.18.9.2:7"}, Ready: "listens", Folder: "/srv/a"}
	cmd, out, said := serve(answer)
	if line, rerr := out.ReadString('\n'); rerr != nil || line != Ready+"\n" {
		t.Fatalf("%q, %v, %v: %s", line, rerr, cmd.Wait(), said)
	}
	if err = netns.Set(outside); err != nil {
		t.Fatal(err)
	}
	up(t, "out", "198.18.9.1/24")
	c, err := net.DialTimeout("tcp", "198.18.9.2:7", 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if want := "pid 1 is init, 02:15:01:a0:09:02 has MTU 1400"; err != nil || string(got) != want {
		t.Errorf("%q (%v), expected %q", got, err, want)
	}
	if err = errors.Join(cmd.Process.Kill(), netns.Set(here)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	cmd, _, said = serve(Program{Argv: []string{self, "be-the-application", "x"}, Ready: "listens"})
	err = cmd.Wait()
	if want := self + " ended before it was ready: exit status 7: and an error"; err == nil ||
		!strings.Contains(said.String(), want) {
		t.Errorf("%v: %q, expected %q", err, said, want)
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// up gives a device an address, and sets it up.
func up(t *testing.T, name, address string) {
	t.Helper()
	a, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := netlink.LinkByName(name)
	if err = errors.Join(err, netlink.AddrAdd(l, a), netlink.LinkSetUp(l)); err != nil {
		t.Fatal(err)
	}
}

func TestFindKernel(t *testing.T) {
	root := fstest.MapFS{}
	if _, err := findKernel(root); !errors.Is(err, errNoKernel) || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	for _, version := range []string{"6.1.0-9-cloud-amd64", "6.1.0-56-cloud-amd64", "5.10.0-99-amd64"} {
		root["boot/vmlinuz-"+version] = &fstest.MapFile{}
	}
	if got, err := findKernel(root); err != nil || got != "boot/vmlinuz-6.1.0-56-cloud-amd64" {
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
	if err = initramfs(t.Context(), file, command{Argv: []string{"/bin/sh", "a b", "ü"}}, []string{"/bin/sh"},
		map[string]string{"/lib/a": "/bin/sh"}); err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	unpack := exec.Command("cpio", "-idm", "--quiet", "-F", file)
	unpack.Dir = into
	out, err := unpack.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, from := range map[string]string{"init": self, "bin/sh": "/bin/sh", "lib/a": "/bin/sh"} {
		got, gerr := os.ReadFile(filepath.Join(into, name))
		want, werr := os.ReadFile(from)
		if gerr != nil || werr != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from %s (%v, %v)", name, from, gerr, werr)
		}
	}
	got, err := os.ReadFile(filepath.Join(into, commandFile))
	if want := `{"argv":["/bin/sh","a b","ü"]}`; err != nil || string(got) != want {
		t.Errorf("%s %v", got, err)
	}
	// The shell starts with the libraries of the archive alone.
	hosttest.Need(t, hosttest.Root)
	out, err = exec.Command("chroot", into, "/bin/sh", "-c", "echo runs").CombinedOutput()
	if err != nil || string(out) != "runs\n" {
		t.Errorf("%s %v", out, err)
	}
}
