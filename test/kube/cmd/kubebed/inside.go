package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/inside"
)

// nodeCommand is a node's first process.
func nodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "node",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return inside.Init(cmd.InOrStdin()) },
	}
}

// execCommand runs a program in a node given by its name.
func execCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "exec NODE COMMAND...",
		Short:              "Run a command with the files and the network of a node (root)",
		Args:               cobra.MinimumNArgs(2),
		DisableFlagParsing: true, // they are the command's
		RunE: func(_ *cobra.Command, args []string) error {
			pid, err := bed.Find(args[0])
			if err != nil {
				return err
			}
			return inside.Enter(0, pid, args[1:])
		},
	}
}

// enterCommand runs a program of process PARENT in the node whose first process is PID.
func enterCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "enter PARENT PID COMMAND...",
		Hidden:             true,
		Args:               cobra.MinimumNArgs(3),
		DisableFlagParsing: true, // they are the command's
		RunE: func(_ *cobra.Command, args []string) error {
			parent, err := strconv.Atoi(args[0])
			pid, perr := strconv.Atoi(args[1])
			if err != nil || perr != nil {
				return fmt.Errorf("enter %s %s: expected the numbers of two processes", args[0], args[1])
			}
			return inside.Enter(parent, pid, args[2:])
		},
	}
}

// reportCommand is what the containers of the bed's image run.
func reportCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "report",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := os.ReadFile("/proc/self/status")
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(status)) {
				if strings.Contains(line, "_allowed_list:") {
					fmt.Fprint(cmd.OutOrStdout(), line)
				}
			}
			for _, e := range os.Environ() {
				fmt.Fprintln(cmd.OutOrStdout(), e)
			}
			if host := os.Getenv("KUBERNETES_SERVICE_HOST"); host != "" {
				fmt.Fprintln(cmd.OutOrStdout(), reach(net.JoinHostPort(host, os.Getenv("KUBERNETES_SERVICE_PORT"))))
			}
			signal.Ignore(syscall.SIGCHLD) // it may be the parent of a pod's orphans: the kernel then reaps them
			<-cmd.Context().Done()
			return nil
		},
	}
}

func reach(server string) string {
	conn, err := net.DialTimeout("tcp", server, 5*time.Second)
	if err != nil {
		return fmt.Sprintf("API server not reached: %v", err)
	}
	defer conn.Close()
	return fmt.Sprintf("API server reached from %s", conn.LocalAddr())
}
