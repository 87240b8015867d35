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
