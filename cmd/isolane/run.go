package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/runtime/running"
)

func runCommand() *cobra.Command {
	var name string
	var c confines
	var fresh temporary
	cmd := &cobra.Command{
		Use:   "run {--lane NAME | --cpus N} -- COMMAND [ARG...]",
		Short: "Start a workload in its lane, or in one that lives as long as it does",
		Long: "Becomes the command, inside the lane's cpuset, with its memory policy and scheduling, and without the\n" +
			"capabilities that only administration needs. It is told of its lane in ISOLANE_CPUS, ISOLANE_CPUS_RELATIVE (as\n" +
			"numbers in the cpuset), ISOLANE_CPUS_ROLE for each role, ISOLANE_MEMORY_NODES, and ISOLANE_HUGEPAGES_2MI (where\n" +
			"pages of that size are mounted).\n\n" +
			"With --cpus it makes a lane for the command, run-PID, passes signals on, and releases the lane when the command\n" +
			"ends. The exit code is the command's (128 and more: it was ended by a signal), 126 where it cannot be executed,\n" +
			"127 where there is none.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, argv []string) error {
			if err := needCapabilities("run"); err != nil {
				return err
			}
			if name == "" {
				return fresh.run(cmd, c, argv)
			}
			return become(cmd, name, c, argv)
		},
	}
	cmd.Flags().StringVar(&name, "lane", "", "lane that is in force")
	cmd.Flags().StringVar(&c.netns, "netns", "", "network namespace to enter (a name under /run/netns)")
	cmd.Flags().StringSliceVar(&c.more, "cap-add", nil, "capabilities to leave to the command beside the usual ones, such as NET_ADMIN,SYS_RAWIO")
	cmd.Flags().IntVar(&c.parent, "parent", 0, "the process that the command does not outlive")
	if err := cmd.Flags().MarkHidden("parent"); err != nil {
		panic(err) // the flag is defined above
	}
	fresh.flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("lane", "cpus")
	cmd.MarkFlagsOneRequired("lane", "cpus")
	return cmd
}

// confines are what a command lives in beside its lane.
type confines struct {
	netns  string
	more   []string // capabilities
	parent int      // the process that the command does not outlive; 0: none
}

// become replaces this process by a command in a lane that is in force.
func become(cmd *cobra.Command, name string, c confines, argv []string) error {
	stays, err := stay(cmd, name)
	if err != nil {
		return err
	}
	l, err := enforce.Look(journal.Dir, host.Live(), ops())
	if err != nil {
		return fail(err)
	}
	lane, err := l.Lane(name)
	if err != nil {
		return usage(fmt.Errorf("--lane: %w", err))
	}
	in, err := laneOf(l, lane, stays)
	if err != nil {
		return err
	}
	in.Netns, in.Capabilities, in.Parent = c.netns, append(in.Capabilities, c.more...), c.parent
	env, err := laneEnvironment(host.Live(), lane)
	if err != nil {
		return fail(err)
	}
	return notStarted(in.Enter(argv, append(os.Environ(), env...)))
}

// What env(1) and others that start programs exit with where there is none to start.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// notStarted gives the error of a program that could not be started the exit code that env(1) gives.
func notStarted(err error) error {
	var e *exec.Error
	switch {
	case !errors.As(err, &e):
		return fail(err)
	case errors.Is(err, exec.ErrNotFound) && !inPath(e.Name), errors.Is(err, fs.ErrNotExist):
		return &exitError{code: exitNotFound, err: err}
	}
	return &exitError{code: exitNotExecutable, err: err}
}

// inPath says whether there is a file of that name, which is then no program (execvp(3), EACCES).
func inPath(name string) bool {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && !info.IsDir() { //nolint:gosec // G703: what the user asks to start
			return true
		}
	}
	return false
}

// stay keeps what runs as a service, or alone in a cgroup as in a container, where it is: its lane comes to that
// cgroup, and whoever has made it stops and limits what runs there as before. Where the kernel cannot, this process
// moves to the lane, and what it leaves running comes back when the service ends. False where the caller is to move.
func stay(cmd *cobra.Command, lane string) (bool, error) {
	root := host.Live()
	h := host.Host{Kernel: host.Kernel{Cgroup: host.Cgroups(root)}} // all that is asked of it
	if h.Kernel.Cgroup.CpusetV1 != nil {                            // there services are in another hierarchy
		return false, nil
	}
	at := enforce.Attachment{Lane: lane, Own: true}
	group, alone := running.OwnGroup(h, root, os.Getpid())
	switch {
	case alone:
		at.Group = group
	case running.InService(h, root, os.Getpid()):
		at.Own, at.PID = false, os.Getpid()
	default:
		return false, nil
	}
	l, err := enforce.OpenWait(cmd.Context(), journal.Dir, root, ops())
	if err != nil {
		return false, fail(err)
	}
	defer l.Close() //nolint:errcheck // what is in force is stored
	if _, err = l.Lane(lane); err != nil {
		return false, usage(fmt.Errorf("--lane: %w", err))
	}
	_, warnings, err := attach(cmd, l, at)
	for _, w := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "isolane:", w)
	}
	return true, err
}

// laneOf is what a workload of the lane lives in; stays says that it is there already.
func laneOf(l *enforce.Lanes, lane plan.Lane, stays bool) (process.Lane, error) {
	groups, err := l.Groups()
	if err != nil {
		return process.Lane{}, fail(err)
	}
	g := groups[slices.IndexFunc(groups, func(g enforce.LaneGroup) bool { return g.Lane.Name == lane.Name })]
	cgroup := g.Dir
	switch {
	case stays:
		cgroup = ""
	case g.Own:
		return process.Lane{}, no(&enforce.OwnedError{Lane: lane.Name, Group: g.Dir})
	}
	in := declared(lane)
	in.Cgroup, in.Memory = cgroup, g.Memory
	return in, nil
}

// declared is what the lane's declaration asks for its processes.
func declared(lane plan.Lane) process.Lane {
	s := lane.Spec.Scheduling
	realTime := s.Policy == "fifo" || s.Policy == "rr"
	keep := process.Usual()
	if realTime {
		keep = append(keep, "SYS_NICE") // to give its threads priorities
	}
	return process.Lane{Confines: process.Confines{Policy: s.Policy, Priority: s.Priority}, MemoryNodes: lane.MemoryNodes,
		Capabilities: keep, RealTime: realTime}
}

// laneEnvironment tells a workload of its lane.
func laneEnvironment(root fs.FS, lane plan.Lane) ([]string, error) {
	relative := func(cpus cpuset.Set) string {
		var places []int
		for i, c := range lane.CPUs.Slice() {
			if cpus.Contains(c) {
				places = append(places, i)
			}
		}
		return cpuset.Of(places...).String()
	}
	env := []string{"ISOLANE_LANE=" + lane.Name, "ISOLANE_CPUS=" + lane.CPUs.String(), "ISOLANE_CPUS_RELATIVE=" + relative(lane.CPUs),
		"ISOLANE_MEMORY_NODES=" + lane.MemoryNodes.String()}
	for role, cpus := range lane.Roles {
		name := "ISOLANE_CPUS_" + strings.ToUpper(strings.ReplaceAll(role, "-", "_"))
		env = append(env, name+"="+cpus.String(), name+"_RELATIVE="+relative(cpus))
	}
	mounts, err := hugepageMounts(root)
	for size, dir := range mounts {
		env = append(env, fmt.Sprintf("ISOLANE_HUGEPAGES_%s=%s", strings.ToUpper(quantity.Bytes(size).String()), dir))
	}
	slices.Sort(env)
	return env, err
}

// hugepageMounts returns where pages of each size are mounted (Documentation/admin-guide/mm/hugetlbpage.rst).
func hugepageMounts(root fs.FS) (map[uint64]string, error) {
	f, err := root.Open("proc/mounts")
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	mounts := map[uint64]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		field := strings.Fields(lines.Text()) // device, directory, type, options
		if len(field) < 4 || field[2] != "hugetlbfs" {
			continue
		}
		for option := range strings.SplitSeq(field[3], ",") {
			size, ok := strings.CutPrefix(option, "pagesize=")
			if !ok {
				continue
			}
			bytes, err := quantity.ParseBytes(strings.TrimSuffix(size, "M") + "Mi")
			if strings.HasSuffix(size, "G") {
				bytes, err = quantity.ParseBytes(strings.TrimSuffix(size, "G") + "Gi")
			}
			if err != nil {
				return nil, fmt.Errorf("/proc/mounts: hugetlbfs on %s: %w", field[1], err)
			}
			if _, earlier := mounts[uint64(bytes)]; !earlier {
				mounts[uint64(bytes)] = field[1]
			}
		}
	}
	return mounts, lines.Err()
}
