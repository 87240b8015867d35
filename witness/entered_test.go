package witness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/results"
)

// process is one of a made-up machine.
type made struct {
	pid, parent, start, cpu, ran int
	namespaces                   string // NSpid
}

func machineOf(groups map[string][]int, all ...made) fstest.MapFS {
	files := fstest.MapFS{}
	for dir, pids := range groups {
		files["c/"+dir+"/cgroup.procs"] = &fstest.MapFile{Data: []byte(strings.Trim(strings.ReplaceAll(fmt.Sprint(pids), " ", "\n"), "[]"))}
	}
	for _, p := range all {
		line := fmt.Sprintf("%d (p%[1]d) S %d%s %d%s%d 0 0 0", p.pid, p.parent, strings.Repeat(" 0", 17), p.start, strings.Repeat(" 0", 16)+" ", p.cpu)
		for _, dir := range []string{fmt.Sprint("proc/", p.pid), fmt.Sprintf("proc/%d/task/%[1]d", p.pid)} {
			files[dir+"/stat"] = &fstest.MapFile{Data: []byte(line)}
			files[dir+"/schedstat"] = &fstest.MapFile{Data: []byte(fmt.Sprint(p.ran, " 0 1"))}
			files[dir+"/status"] = &fstest.MapFile{Data: []byte("Cpus_allowed_list:\t0-3\nNSpid:\t" + p.namespaces + "\n")}
		}
	}
	return files
}

// What came into a container from outside is no work of its lane; what its first process started is.
func TestEntered(t *testing.T) {
	groups := map[string][]int{"pod": {10, 11, 12, 20, 21, 22}, "service": {30, 31}}
	at := func(ran int, more ...made) fstest.MapFS {
		return machineOf(groups, append([]made{
			{1, 0, 1, 0, ran, "1"},
			{5, 1, 2, 0, ran, "5"},                       // the shim
			{10, 5, 100, 1, ran, "10\t1"},                // the container's first
			{11, 10, 101, 1, ran, "11\t2"},               // and what it started
			{12, 10, 300, 1, ran, "12\t9"},               // later, too
			{20, 5, 200, 1, ran, "20\t7"},                // an exec probe
			{21, 20, 201, 2, ran, "21\t8"},               // and what it started
			{30, 1, 100, 1, ran, "30"},                   // a service that is attached
			{31, 1, 120, 1, ran, "31"},                   // which runs something to reload
			{22, 5, 202, 3, ran, "22\t10"}}, more...)...) // on a CPU that is not watched
	}
	var e entered
	dirs := []string{"/c/pod", "/c/service", "/c/gone"}
	e.look(at(1000), dirs, cpuset.Set{})
	found := func(root fstest.MapFS) string {
		e.look(root, dirs, cpuset.MustParse("1-2"))
		var all []string
		for _, s := range e.sources {
			if s.Kind != results.Task || s.Remedy != enteredRemedy {
				t.Errorf("%+v", s)
			}
			all = append(all, fmt.Sprintf("%s on %d: %d", s.Name, s.CPU, *s.Total))
		}
		slices.Sort(all)
		return strings.Join(all, ", ")
	}
	if got := found(at(1000)); got != "" { // what they ran before the watch began is not its business
		t.Error(got)
	}
	if got := found(at(1500)); got != "p20 on 1: 500, p21 on 2: 500" {
		t.Error(got)
	}
	groups["pod"] = append(groups["pod"], 23)
	gone := at(1700, made{23, 5, 400, 2, 40, "23\t11"}) // another probe; the first ends, and its child is the container's
	delete(gone, "proc/20/stat")
	gone["proc/21/stat"] = at(1700, made{21, 10, 201, 2, 1700, "21\t8"})["proc/21/stat"]
	if got := found(gone); got != "p20 on 1: 500, p21 on 2: 700, p23 on 2: 40" {
		t.Error(got)
	}
}

// The same in a real PID namespace and cgroup.
func TestEnteredLive(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, program := range []string{"unshare", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("skipped: needs ", program)
		}
	}
	root, dir := os.DirFS("/"), group(t)
	const join = "echo 0 > $0/cgroup.procs; "
	run := func(program string, args ...string) {
		cmd := exec.Command(program, args...)
		out, perr := cmd.StdoutPipe()
		if perr == nil {
			perr = cmd.Start()
		}
		if perr != nil {
			t.Fatal(perr)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // of what it started --kill-child and the namespace's first process take care
			_ = cmd.Wait()
		})
		if _, perr = out.Read(make([]byte, 1)); perr != nil {
			t.Fatal(perr)
		}
	}
	run("unshare", "--pid", "--fork", "--kill-child", "sh", "-c", join+"sleep 1000 & echo; wait", dir)
	pids, err := cgroup.Processes(root, dir)
	if err != nil || len(pids) != 2 {
		t.Fatal(pids, err)
	}
	first := slices.Min(pids)
	run("nsenter", "--pid", "--target="+strconv.Itoa(first), "sh", "-c", join+"echo; while :; do :; done", dir)
	online := cpuset.MustParse("0-4095")
	var e entered
	for by := time.Now().Add(30 * time.Second); len(e.sources) == 0 && time.Now().Before(by); {
		e.look(root, []string{dir}, online)
	}
	for _, s := range e.sources {
		if slices.Contains(pids, s.PID) || s.Cgroup == "" || *s.Total == 0 {
			t.Errorf("%+v", s)
		}
	}
	if len(e.sources) == 0 {
		t.Error("the process that came from outside was not found")
	}
}

// remove removes a cgroup when what was in it has ended.
func remove(t *testing.T, dir string) {
	t.Helper()
	err := os.Remove(dir)
	for by := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(by); err = os.Remove(dir) {
		runtime.Gosched()
	}
	if err != nil {
		t.Error(err)
	}
}

// group makes a cgroup in the hierarchy with the cpuset controller, which has all CPUs.
func group(t *testing.T) string {
	t.Helper()
	mounts, err := cgroup.Mounted(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	top, v2 := mounts.Cpuset()
	dir := filepath.Join(top, fmt.Sprintf("witness-test-%d", os.Getpid()))
	if err = os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, dir) })
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if text, rerr := os.ReadFile(filepath.Join(top, file)); !v2 && rerr == nil {
			err = os.WriteFile(filepath.Join(dir, file), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
