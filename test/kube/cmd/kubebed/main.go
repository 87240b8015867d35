// Command kubebed starts and ends a real Kubernetes for tests on this machine.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/test/kube"
	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/fold"
)

func main() {
	if filepath.Base(os.Args[0]) == fold.Runc {
		fmt.Fprintln(os.Stderr, fold.Run(os.Args)) // it returns only with an error
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "kubebed: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "kubebed",
		Short:         "A real Kubernetes for tests, whose nodes are namespaces of this machine",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(buildCommand(), upCommand(), downCommand(), aroundCommand(), execCommand(),
		nodeCommand(), enterCommand(), reportCommand())
	return root
}

func buildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build [PROGRAM...]",
		Short: "Build programs of Kubernetes, or all, where they are not there yet, and print their folder",
		RunE: func(cmd *cobra.Command, names []string) error {
			dir, err := kube.Build(cmd.Context(), cmd.ErrOrStderr(), names...)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), dir)
			}
			return err
		},
	}
}

func upCommand() *cobra.Command {
	var nodes int
	var foreground bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster and print its kubeconfig when pods can run (root)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !foreground {
				return detach(cmd, nodes)
			}
			return stay(cmd, nodes)
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 1, "how many nodes")
	cmd.Flags().BoolVar(&foreground, "foreground", false, "stay until a signal comes")
	return cmd
}

// stay keeps a bed until a signal arrives.
func stay(cmd *cobra.Command, nodes int) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	b, err := bed.Start(cmd.Context(), bed.Options{Program: program, Nodes: make([]bed.NodeOptions, nodes),
		Log: cmd.ErrOrStderr(), Detached: true})
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), b.Kubeconfig)
	<-cmd.Context().Done()
	return b.Close()
}

// detach restarts this program to stay, and waits until it has printed the kubeconfig.
func detach(cmd *cobra.Command, nodes int) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	other := exec.Command(program, "up", "--foreground", fmt.Sprintf("--nodes=%d", nodes))
	other.Stdout, other.Stderr = in, in
	other.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it does not end with this terminal
	if err = errors.Join(other.Start(), in.Close()); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if file, ok := strings.CutSuffix(lines.Text(), ".kubeconfig"); ok && strings.HasPrefix(file, "/") {
			fmt.Fprintln(cmd.OutOrStdout(), lines.Text())
			return other.Process.Release()
		}
		fmt.Fprintln(cmd.ErrOrStderr(), lines.Text())
	}
	return errors.Join(lines.Err(), fmt.Errorf("no cluster: %w", other.Wait()))
}

// aroundCommand starts a cluster whose nodes are in a virtual machine that the command runs.
func aroundCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "around DIRECTORY COMMAND...",
		Short: "Start a control plane, run a command in its network, and end it (root)",
		Long: `Starts a control plane without nodes, copies what nodes need to join it to a new directory, runs a
command in its network, where the device ` + bed.Tap + ` leads to it, and ends it all.`,
		Args:               cobra.MinimumNArgs(2),
		DisableFlagParsing: true, // they are the command's
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			b, err := bed.Start(cmd.Context(), bed.Options{Machine: true, Log: cmd.ErrOrStderr()})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, b.Close()) }()
			if err = os.CopyFS(args[0], os.DirFS(filepath.Join(b.Dir, "pki"))); err != nil {
				return err
			}
			defer os.RemoveAll(args[0])
			fmt.Fprintln(cmd.ErrOrStderr(), b.Kubeconfig)
			inner := exec.CommandContext(cmd.Context(), args[1], args[2:]...)
			inner.Stdin, inner.Stdout, inner.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return b.Run(inner)
		},
	}
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the clusters of up, and clear what a killed one left (root)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			did, err := bed.Down(cmd.Context())
			for _, line := range did {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			}
			return err
		},
	}
}
