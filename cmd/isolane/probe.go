package main

import (
	"encoding/json"

	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/echo"
)

func probeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Run one measuring program by itself",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(echoCommand())
	return cmd
}

func echoCommand() *cobra.Command {
	var serve bool
	var address, wait, settings string
	s := probe.Settings{Name: "echo"}
	cmd := &cobra.Command{
		Use:   "echo --address IP:PORT",
		Short: "Round-trip time: the application that answers (--serve), or the client that measures",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if settings != "" {
				if err := json.Unmarshal([]byte(settings), &s); err != nil {
					return usage(fmt.Errorf("--settings: %w", err))
				}
			} else {
				addr, err := netip.ParseAddrPort(address)
				if err != nil {
					return usage(fmt.Errorf("--address %q: expected IP:PORT", address))
				}
				s.Address, s.Wait = addr, wait
			}
			if serve {
				if !slices.Contains([]string{"", probe.Spin, probe.Block}, wait) {
					return usage(fmt.Errorf("--wait %q: expected spin or block", wait))
				}
				return failed(echo.Serve(cmd.Context(), s.Address, wait, cmd.OutOrStdout()))
			}
			if err := s.Validate(); err != nil {
				return usage(err)
			}
			m, err := echo.Run(cmd.Context(), s)
			if err != nil {
				return fail(err)
			}
			return printJSON(cmd.OutOrStdout(), m)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&serve, "serve", false, "be the application")
	f.StringVar(&address, "address", "127.0.0.1:7007", "of the application")
	f.StringVar(&wait, "wait", "",
		"how to await messages: spin (the client's default) or block (the application's)")
	f.StringVar(&s.Protocol, "protocol", probe.UDP, "udp or tcp")
	f.StringVar(&s.Mode, "mode", probe.PingPong, "pingpong (closed loop) or open (fixed rate)")
	f.IntVar(&s.PayloadBytes, "payload", 64, "bytes of a message")
	f.Float64Var(&s.RatePerSecond, "rate", 0, "messages per second in mode open")
	f.DurationVar(&s.Gap, "gap", 0, "pause after each reply in mode pingpong")
	f.DurationVar(&s.Warmup, "warmup", 100*time.Millisecond, "measured and dropped")
	f.DurationVar(&s.Window, "window", time.Second, "measured")
	f.StringVar(&settings, "settings", "", "all of it as JSON")
	cmd.MarkFlagsMutuallyExclusive("settings", "serve")
	return cmd
}

func failed(err error) error {
	if err != nil {
		return fail(err)
	}
	return nil
}
