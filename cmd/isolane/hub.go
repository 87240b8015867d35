package main

import (
	"errors"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
)

// hubCommand is isolane-hub, a program of its own: it has the libraries of Kubernetes.
func hubCommand() *cobra.Command {
	return toHub("hub", "One hub for many hosts: up, token, why, findings, backup; get, apply, describe, delete")
}

// ofHub are the parts of the agent of a host that follows a hub.
func ofHub() []*cobra.Command {
	return []*cobra.Command{
		toHub("join", "Join a hub with this host: https://HUB:PORT --token T", "join"),
		toHub("status", "Show what this host runs for its hub, which need not be there", "status"),
		toHub("hold", "Put the hub's changes off for a time: 2h --reason TEXT", "hold"),
		toHub("rehome", "Move this host to another hub, what runs goes on: https://HUB:PORT --token T", "rehome"),
	}
}

// toHub is a command that becomes isolane-hub with its arguments, after those that are its own.
func toHub(use, short string, first ...string) *cobra.Command {
	return &cobra.Command{
		Use: use + " [ARG...]", Short: short, Args: cobra.ArbitraryArgs, DisableFlagParsing: true,
		Long: short + ".\nStarts isolane-hub, which is beside isolane or on the path; --help is that program's.",
		RunE: func(_ *cobra.Command, args []string) error {
			at, err := cli.Program("isolane-hub")
			if err != nil {
				return cli.Hint(errors.New("isolane-hub: expected it beside isolane, or on the path"),
					"install the package isolane-hub; in Isolane's sources: make hub")
			}
			return syscall.Exec(at, append(append([]string{"isolane-hub"}, first...), args...), os.Environ())
		},
	}
}
