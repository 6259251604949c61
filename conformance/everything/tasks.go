package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"mcpbridge/clients/provider"
)

// work is how long the tools that take tasks work before they say anything.
const work = time.Second

// taskTools are the fixtures of the tasks extension, and one that never is a task.
func taskTools() []provider.Tool {
	return []provider.Tool{
		{
			Name: "greet", Title: "Greeting", Description: "Says hello at once.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","description":"Who is greeted."}}}`),
			Handle: func(_ context.Context, call *provider.Call) (provider.Result, error) {
				var in struct{ Name string }
				err := call.Bind(&in)
				return provider.Text("Hello, " + in.Name + "!"), err
			},
		},
		{
			Name: "slow_compute", Title: "Slow computation", Description: "Takes as many seconds as it is told.", TaskSupport: provider.TaskOptional,
			InputSchema: json.RawMessage(`{"type":"object","properties":{"seconds":{"type":"number","description":"How long it takes.","minimum":0,"maximum":60},"label":{"type":"string","description":"Goes into the result."}}}`),
			Handle:      compute,
		},
		{
			Name: "failing_job", Title: "Failing job", Description: "Works for a second, and fails.", TaskSupport: provider.TaskRequired,
			Handle: after(provider.Failure("The job failed."), nil),
		},
		{
			Name: "protocol_error_job", Title: "Broken job", Description: "Works for a second, and ends with a protocol error.", TaskSupport: provider.TaskOptional,
			Handle: after(provider.Result{}, &provider.Error{Code: provider.CodeInternal, Message: "the job broke"}),
		},
		{
			Name: "confirm_delete", Title: "Confirmed deletion", Description: "Asks the user before it does as if it deleted a file.", TaskSupport: provider.TaskOptional,
			InputSchema: json.RawMessage(`{"type":"object","properties":{"filename":{"type":"string","description":"What would be deleted."}}}`),
			Handle: later(asks("", map[string]provider.Request{"confirm": provider.Elicit("Really delete it?",
				json.RawMessage(`{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}`))},
				func(c *provider.Call) (provider.Result, bool) {
					a, ok := elicited(c.Responses["confirm"])
					return provider.Text("Deletion: " + a.String()), ok
				})),
		},
		{
			Name: "multi_input", Title: "Two questions", Description: "Asks the user two things at once.", TaskSupport: provider.TaskOptional,
			Handle: later(asks("", map[string]provider.Request{"name": askName, "confirm": askOK},
				func(c *provider.Call) (provider.Result, bool) {
					name, ok := elicited(c.Responses["name"])
					confirm, also := elicited(c.Responses["confirm"])
					return provider.Text(name.String() + " and " + confirm.String()), ok && also
				})),
		},
		{
			Name: "test_tool_with_task", Title: "Question, then a task", Description: "Asks for a name at once, and works with it for a second.", TaskSupport: provider.TaskRequired,
			Handle: func(ctx context.Context, call *provider.Call) (provider.Result, error) {
				if call.Responses == nil {
					return provider.Ask("", map[string]provider.Request{"user_name": askName}), nil
				}
				r, ok := hello(call.Responses["user_name"])
				if !ok {
					return provider.Ask("", map[string]provider.Request{"user_name": askName}), nil
				}
				return r, wait(ctx, work)
			},
		},
	}
}

func compute(ctx context.Context, call *provider.Call) (provider.Result, error) {
	var in struct {
		Seconds float64
		Label   string
	}
	if err := call.Bind(&in); err != nil {
		return provider.Result{}, err
	}
	if err := wait(ctx, time.Duration(in.Seconds*float64(time.Second))); err != nil {
		return provider.Result{}, err
	}
	return provider.Text(fmt.Sprintf("%s took %g seconds.", in.Label, in.Seconds)), nil
}

// after answers when the work is done.
func after(r provider.Result, failure error) provider.Handler {
	return func(ctx context.Context, _ *provider.Call) (provider.Result, error) {
		if err := wait(ctx, work); err != nil {
			return provider.Result{}, err
		}
		return r, failure
	}
}

// later works before it does what a handler does.
func later(next provider.Handler) provider.Handler {
	return func(ctx context.Context, call *provider.Call) (provider.Result, error) {
		if err := wait(ctx, work); err != nil {
			return provider.Result{}, err
		}
		return next(ctx, call)
	}
}
