package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/lab"
)

// machine has the flags that describe a machine.
type machine struct{ file, kernel, cmdline, share, tap string }

func (m *machine) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&m.file, "machine", "m", "",
		"description of the machine (YAML); without it two sockets, two nodes, eight CPUs")
	cmd.Flags().StringVar(&m.kernel, "kernel", "", strings.Join(lab.KernelNames(), ", "))
	cmd.Flags().StringVar(&m.cmdline, "cmdline", "", "added to the kernel's command line")
	cmd.Flags().StringVar(&m.share, "share", "", "folder that the guest has as /host, and may write to")
}

// alone adds the flags of a machine that is not one of a pair.
func (m *machine) alone(cmd *cobra.Command) {
	m.flags(cmd)
	cmd.Flags().StringVar(&m.tap, "tap", "", "tap device of this host, for the machine's network cards")
}

// describe returns the machine that the flags describe.
func (m *machine) describe() (lab.Machine, error) {
	described := lab.Default()
	if m.file != "" {
		var err error
		if described, err = lab.ReadMachine(m.file); err != nil {
			return described, usage(err)
		}
	}
	if m.kernel != "" {
		described.Kernel = m.kernel
	}
	described.Cmdline = strings.TrimSpace(described.Cmdline + " " + m.cmdline)
	if err := described.Validate(); err != nil {
		return described, usage(err)
	}
	return described, nil
}

// start boots the machine that the flags describe.
func (m *machine) start(cmd *cobra.Command, o lab.Options) (*lab.VM, error) {
	described, err := m.describe()
	if err != nil {
		return nil, err
	}
	cache, err := lab.Cache()
	if err != nil {
		return nil, fail(err)
	}
	l, err := lab.Open(cache)
	if err != nil {
		return nil, fail(err)
	}
	runner, err := os.Executable()
	if err != nil {
		return nil, fail(err)
	}
	o.Runner, o.Log = filepath.Dir(runner), cmd.ErrOrStderr()
	if o.Share, err = m.shared(o.Dir); err != nil {
		return nil, err
	}
	fmt.Fprintln(o.Log, "isolane-lab: emulated in software: what is measured in this machine means nothing")
	vm, err := l.Start(cmd.Context(), described, o)
	return vm, fail(err)
}

// shared returns the folder that is /host in the guest.
func (m *machine) shared(dir string) (string, error) {
	if m.share == "" {
		share := filepath.Join(dir, "host")
		return share, fail(os.MkdirAll(share, 0o755))
	}
	share, err := filepath.Abs(m.share)
	if err != nil {
		return "", fail(err)
	}
	if info, err := os.Stat(share); err != nil || !info.IsDir() {
		return "", usage(fmt.Errorf("--share %s: expected a folder", m.share))
	}
	return share, nil
}

func runCommand() *cobra.Command {
	var m machine
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND...",
		Short: "Boot a machine, run a command in it, and end it",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := os.MkdirTemp("", "isolane-lab-")
			if err != nil {
				return fail(err)
			}
			defer os.RemoveAll(dir)
			vm, err := m.start(cmd, lab.Options{Dir: dir, Wire: lab.Wire{Tap: m.tap}})
			if err != nil {
				return err
			}
			defer vm.Stop()
			return guestRun(cmd, vm, args, limit)
		},
	}
	m.alone(cmd)
	timeout(cmd, &limit)
	return cmd
}

func upCommand() *cobra.Command {
	var m machine
	var first string
	cmd := &cobra.Command{
		Use:   "up NAME",
		Short: "Boot a machine that keeps running, until nobody has used it for an hour",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := lab.Wire{Tap: m.tap}
			if first != "" {
				dir, err := place(first)
				if err != nil {
					return err
				}
				w = wire(dir, 1)
				if _, err = os.Stat(w.Socket); err != nil || !lab.Running(dir) {
					return usage(fmt.Errorf("--pair %s: expected the first machine of a pair, which runs", first))
				}
			}
			return m.up(cmd, args[0], w)
		},
	}
	m.alone(cmd)
	cmd.Flags().StringVar(&first, "pair", "", "first machine of a pair, of which this is to be the second again")
	cmd.MarkFlagsMutuallyExclusive("tap", "pair")
	return cmd
}

// wire joins the machines of a pair; dir is that of the first.
func wire(dir string, end int) lab.Wire {
	return lab.Wire{Socket: filepath.Join(dir, "wire"), End: end}
}

// up boots a machine that keeps running.
func (m *machine) up(cmd *cobra.Command, name string, w lab.Wire) error {
	dir, err := place(name)
	if err != nil {
		return err
	}
	if lab.Running(dir) {
		return usage(fmt.Errorf("%s runs already: end it with isolane-lab down %[1]s", name))
	}
	if err = os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	vm, err := m.start(cmd, lab.Options{Dir: dir, Detach: true, Wire: w})
	if err != nil {
		return err
	}
	vm.Close()
	return nil
}

func pairCommand() *cobra.Command {
	var m machine
	cmd := &cobra.Command{
		Use:   "pair NAME NAME",
		Short: "Boot two machines, whose network cards are on one segment, that keep running",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, names []string) error {
			return m.pair(cmd, names)
		},
	}
	m.flags(cmd)
	return cmd
}

// pair boots two machines at once. If one fails, the other is ended, because it has nobody to talk to.
func (m *machine) pair(cmd *cobra.Command, names []string) error {
	var dirs []string
	for _, name := range names {
		dir, err := place(name)
		if err != nil {
			return err
		}
		if lab.Running(dir) || slices.Contains(dirs, dir) {
			return usage(fmt.Errorf("%s: expected two names of which no machine runs", strings.Join(names, " ")))
		}
		dirs = append(dirs, dir)
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	cmd.SetContext(ctx)
	ended := make(chan error, len(names))
	for end, name := range names {
		go func() { ended <- m.up(cmd, name, wire(dirs[0], end)) }()
	}
	var first error
	for range names {
		if err := <-ended; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	for _, dir := range dirs {
		if first != nil && lab.Running(dir) {
			_ = lab.Down(dir) // first has what went wrong
		}
	}
	return first
}

func execCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "exec NAME -- COMMAND...",
		Short: "Run a command in a running machine",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := place(args[0])
			if err != nil {
				return err
			}
			vm, err := lab.Attach(dir, limit)
			if err != nil {
				return fail(err)
			}
			defer vm.Close()
			return guestRun(cmd, vm, args[1:], limit)
		},
	}
	timeout(cmd, &limit)
	return cmd
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down NAME...",
		Short: "End running machines",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, names []string) error {
			for _, name := range names {
				dir, err := place(name)
				if err != nil {
					return err
				}
				if err = lab.Down(dir); err != nil {
					return fail(err)
				}
				if err = os.RemoveAll(dir); err != nil {
					return fail(err)
				}
			}
			return nil
		},
	}
}

func timeout(cmd *cobra.Command, limit *time.Duration) {
	cmd.Flags().DurationVar(limit, "timeout", 10*time.Minute, "of the command")
}

// guestRun runs a command in a machine, with this process's output.
func guestRun(cmd *cobra.Command, vm *lab.VM, argv []string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	code, err := vm.Exec(ctx, argv, cmd.OutOrStdout(), cmd.ErrOrStderr())
	if err == nil && code != 0 {
		return &exitError{code: code}
	}
	return fail(err)
}

// place returns the folder of a machine that keeps running. It lies where everybody may write, so it is used
// only if it belongs to this user.
func place(name string) (string, error) {
	if strings.ContainsAny(name, "/\x00") || name == "" || name[0] == '.' {
		return "", usage(fmt.Errorf("%q: expected a name without slashes", name))
	}
	parent := filepath.Join(os.TempDir(), fmt.Sprintf("isolane-lab-%d", os.Getuid()))
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", fail(err)
	}
	info, err := os.Lstat(parent)
	if err != nil {
		return "", fail(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm() != 0o700 || int(stat.Uid) != os.Getuid() {
		return "", fail(fmt.Errorf("%s: expected a folder that only this user can enter: remove it", parent))
	}
	return filepath.Join(parent, name), nil
}
