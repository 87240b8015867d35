package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/agent"
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
	return agent.Client{Socket: agent.Socket(), None: lacks, Heard: func(theirs string) {
		if ours := version.Of().Version; theirs != ours {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: the agent is isolane %s, this command is isolane %s: install one "+
				"version, and systemctl restart isolane-agent\n", theirs, ours)
		}
	}}
}

// unable says whether a command failed for what this user may not do, and an agent may.
func unable(err error) bool {
	return errors.Is(err, journal.ErrNeedsRoot) || is[*process.CapabilityError](err)
}

// askApply has the agent put lanes in force. Where there is none, what the user lacks comes before what is
// wrong with the files.
func askApply(cmd *cobra.Command, lacks error, files laneFiles, prune bool) (a lanes.Applied, err error) {
	want, err := files.read(cmd)
	if err == nil {
		a, err = agentOf(cmd, lacks).Apply(cmd.Context(), want, prune)
	} else if _, none := agentOf(cmd, lacks).Status(cmd.Context()); errors.Is(none, lacks) {
		err = lacks
	}
	return a, err
}
