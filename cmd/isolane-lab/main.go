// Command isolane-lab runs virtual machines with the hardware and kernels that Isolane is for: several
// NUMA nodes, SMT, SR-IOV, a real-time kernel. Timings measured in them mean nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := command().ExecuteContext(ctx)
	stop()
	var code exitCode
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintf(os.Stderr, "isolane-lab: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

// exitCode is that of a command in the guest.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "isolane-lab",
		Short:         "Virtual machines with NUMA, SMT, SR-IOV and a real-time kernel, from Debian packages",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	guest := &cobra.Command{Use: "guest PORT", Hidden: true, Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
		return lab.Guest(args[0])
	}}
	build := &cobra.Command{Use: "build", Short: "Make the lab of the newest packages (root, network)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cache, err := lab.Cache()
			if err != nil {
				return err
			}
			_, err = lab.Build(cmd.Context(), cache, cmd.ErrOrStderr())
			return err
		}}
	root.AddCommand(build, guest, runCommand(), upCommand(), execCommand(), downCommand())
	return root
}

// machine is the flags that describe one.
type machine struct{ file, kernel, cmdline, share string }

func (m *machine) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&m.file, "machine", "m", "", "description of the machine (YAML); without it two sockets, two nodes, eight CPUs")
	cmd.Flags().StringVar(&m.kernel, "kernel", "", "generic or rt")
	cmd.Flags().StringVar(&m.cmdline, "cmdline", "", "added to the kernel's command line")
	cmd.Flags().StringVar(&m.share, "share", "", "folder that the guest has as /host")
}

// start boots the machine that the flags describe.
func (m *machine) start(ctx context.Context, dir string, detach bool) (*lab.VM, error) {
	cache, err := lab.Cache()
	if err != nil {
		return nil, err
	}
	l, err := lab.Open(cache)
	if err != nil {
		return nil, err
	}
	described := lab.Default()
	if m.file != "" {
		if described, err = lab.ReadMachine(m.file); err != nil {
			return nil, err
		}
	}
	if m.kernel != "" {
		described.Kernel = m.kernel
	}
	described.Cmdline = strings.TrimSpace(described.Cmdline + " " + m.cmdline)
	runner, err := os.Executable()
	if err != nil {
		return nil, err
	}
	share := m.share
	if share == "" {
		share = filepath.Join(dir, "host")
		if err = os.MkdirAll(share, 0o755); err != nil {
			return nil, err
		}
	}
	if share, err = filepath.Abs(share); err != nil {
		return nil, err
	}
	return l.Start(ctx, described, lab.Options{Runner: filepath.Dir(runner), Share: share, Dir: dir, Detach: detach, Log: os.Stderr})
}

// guestRun runs a command in a machine, with this process's output.
func guestRun(ctx context.Context, vm *lab.VM, argv []string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	code, err := vm.Exec(ctx, argv, os.Stdout, os.Stderr)
	if err == nil && code != 0 {
		err = exitCode(code)
	}
	return err
}

func runCommand() *cobra.Command {
	var m machine
	var limit time.Duration
	cmd := &cobra.Command{Use: "run [flags] -- COMMAND...", Short: "Boot a machine, run a command in it, and end it", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := os.MkdirTemp("", "isolane-lab-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
			vm, err := m.start(cmd.Context(), dir, false)
			if err != nil {
				return err
			}
			defer vm.Stop()
			return guestRun(cmd.Context(), vm, args, limit)
		}}
	m.flags(cmd)
	cmd.Flags().DurationVar(&limit, "timeout", 10*time.Minute, "of the command")
	return cmd
}

// place is the folder of a machine that keeps running.
func place(name string) (string, error) {
	if strings.ContainsAny(name, "/\x00") || name == "" || name[0] == '.' {
		return "", fmt.Errorf("%q: expected a name without slashes", name)
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("isolane-lab-%d", os.Getuid()), name), nil
}

func upCommand() *cobra.Command {
	var m machine
	cmd := &cobra.Command{Use: "up NAME", Short: "Boot a machine that keeps running", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := place(args[0])
			if err != nil {
				return err
			}
			if err = os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			if lab.Running(dir) {
				return fmt.Errorf("%s runs already: end it with isolane-lab down %[1]s", args[0])
			}
			vm, err := m.start(cmd.Context(), dir, true)
			if err != nil {
				return err
			}
			vm.Close()
			return nil
		}}
	m.flags(cmd)
	return cmd
}

func execCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{Use: "exec NAME -- COMMAND...", Short: "Run a command in a running machine", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := place(args[0])
			if err != nil {
				return err
			}
			vm, err := lab.Attach(dir, limit)
			if err != nil {
				return err
			}
			defer vm.Close()
			return guestRun(cmd.Context(), vm, args[1:], limit)
		}}
	cmd.Flags().DurationVar(&limit, "timeout", 10*time.Minute, "of the command")
	return cmd
}

func downCommand() *cobra.Command {
	return &cobra.Command{Use: "down NAME", Short: "End a running machine", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := place(args[0])
			if err != nil {
				return err
			}
			if err := lab.Down(dir); err != nil {
				return err
			}
			return os.RemoveAll(dir)
		}}
}
