package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/agent"
	"isolane.dev/isolane/change"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/history/diary"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath/drivers"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/version"
)

// options are those of this host.
func options() lanes.Options {
	return lanes.Options{Paths: drivers.Paths(), Ops: drivers.Ops()}.Complete()
}

// thisHost is for what a command does to the lanes of this host, which isolane history shows.
func thisHost(cmd *cobra.Command) *diary.Host {
	return &diary.Host{Options: options(), Out: cmd.ErrOrStderr(),
		Diary: diary.Diary{Dir: history.Place(), Who: history.Caller(typed())}}
}

// agentOf is the agent of this host, for a user who may not do himself what he asks for. lacks is the error
// that he got; it stays where no agent answers.
func agentOf(cmd *cobra.Command, lacks error) agent.Client {
	return agent.Client{Socket: agent.Socket(), None: lacks, Version: version.Of().Version,
		Out: cmd.ErrOrStderr()}
}

// unable says whether a command failed for what this user may not do, and an agent may.
func unable(err error) bool {
	return errors.Is(err, journal.ErrNeedsRoot) || is[*process.CapabilityError](err)
}

// sudo is the command line that the user typed, as root.
func sudo() string { return "sudo " + typed() }

// typed is the command line of this process.
func typed() string { return change.Quote(os.Args...) }
