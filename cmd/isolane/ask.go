package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/agent"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/version"
)

// agentSocket is where the agent of this host serves its API.
func agentSocket() string { return cmp.Or(os.Getenv("ISOLANE_SOCKET"), "/run/isolane.sock") }

// unable says whether a command failed for what this user may not do, and an agent may.
func unable(err error) bool {
	return errors.Is(err, journal.ErrNeedsRoot) || is[*process.CapabilityError](err)
}

// ask has the agent of this host answer a user who may not do it himself. lacks is the error that he got; it
// stays where no agent answers.
func ask(cmd *cobra.Command, lacks error, method, target string, want []lane.Lane, document any) error {
	theirs, err := agent.Ask(cmd.Context(), agentSocket(), method, target, want, document)
	if errors.Is(err, agent.ErrNone) {
		return lacks
	}
	if ours := version.Of(release, commit, date).Version; theirs != ours {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: the agent is isolane %s, this command is isolane %s: install one "+
			"version, and systemctl restart isolane-agent\n", theirs, ours)
	}
	if answer, not := errors.AsType[*agent.AnswerError](err); not {
		switch answer.Status {
		case http.StatusForbidden:
			return hint(err, sudo())
		case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge:
			return usage(err)
		case http.StatusConflict:
			return no(err)
		}
	}
	return err
}

func askStatus(cmd *cobra.Command, lacks error) (s enforce.Status, err error) {
	err = ask(cmd, lacks, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// askPlan asks where the user may not see the lanes in force.
func askPlan(cmd *cobra.Command, want []lane.Lane) (p plan.Placement, asked bool, err error) {
	_, lacks := lanes.Look(options())
	if !unable(lacks) {
		return p, false, nil
	}
	if err = ask(cmd, lacks, http.MethodPost, "/v1/plan", want, &p); errors.Is(err, lacks) {
		return p, false, nil // the plan without them is worth something
	}
	return p, true, err
}

func askApply(cmd *cobra.Command, lacks error, files laneFiles, prune bool) (a lanes.Applied, err error) {
	want, err := files.read(cmd)
	if err == nil {
		target := "/v1/apply?prune=" + strconv.FormatBool(prune)
		err = plan.At(ask(cmd, lacks, http.MethodPost, target, want, &a), want)
	} else if _, none := askStatus(cmd, lacks); errors.Is(none, lacks) {
		err = lacks // whatever is wrong with the files
	}
	return a, err
}

// askRelease releases the lanes of these names, or all.
func askRelease(cmd *cobra.Command, lacks error, names []string, all bool) (r lanes.Released, err error) {
	query := url.Values{"lane": names}
	if all {
		query = url.Values{"all": {"true"}}
	}
	err = ask(cmd, lacks, http.MethodPost, "/v1/release?"+query.Encode(), nil, &r)
	return r, err
}
