"""What readers do in a browser, and what is promised of sentences and terms -> words that stand in
file::name of the tests which show it; none where no test does it."""

INTERACTIONS = {
    # pages
    "Every page: no console error, no other host, axe clean, 390 and 1280 px, dark and light":
        ("test_every_page_opens_fits_and_can_be_read_by_all", "test_every_page_can_be_used_by_everybody"),
    "The theme follows the system, then the switch": ("test_the_theme_follows_the_system",),
    "From the address bar to a slider by keyboard alone": ("test_by_keyboard_from_the_address_bar",),
    # the book
    "Layers switched and remembered, a self-check answered, search": ("test_layers_a_question_and_search",),
    "A cell in a chapter runs, keeps its promises and plots": ("test_a_cell_in_a_chapter",),
    "Chapters opened from files": ("studio/book_browser_test.py::test_from_files",),
    "The workshop: predict, start, watch": ("test_predict_start_and_watch",),
    "An exercise answered wrong, then right; hints; a question and its model answer; progress":
        ("test_wrong_then_right_by_keyboard",),
    "Progress exported": ("test_progress_is_exported",),
    # instruments
    "Pipeline: tries by keyboard": ("test_tries_by_keyboard",),
    "Labeller: labels by keyboard": ("test_labels_by_keyboard",),
    "Algorithms: a model size by keyboard": ("test_a_model_size_by_keyboard",),
    "GRPO: a reward by keyboard": ("test_a_reward_by_keyboard",),
    "Reward hacking: a penalty by keyboard": ("test_a_penalty_moved_by_keyboard",),
    "Bradley-Terry: a shift by keyboard, what the library computes":
        ("test_a_shift_moved_by_keyboard", "test_a_slider_moved_by_keyboard"),
    "DPO and PPO: beta by keyboard": ("test_beta_moved_by_keyboard",),
    "PPO clip: a ratio by keyboard": ("test_a_ratio_moved_by_keyboard",),
    "The seven new instruments: a control of each by keyboard": ("test_a_control_of_each_moved_by_keyboard",),
    "Figure and sentence in sight of every control":
        ("test_the_figure_and_its_sentence_are_in_sight_of_every_control",),
    "GRPO: each slider in its answer's row": ("test_the_sliders_of_a_group_stand_in_the_rows",),
    "A point is dragged": ("test_a_point_is_dragged",),
    "A step of training, stepped, scrubbed and played; reduced motion":
        ("test_a_step_of_training_is_stepped_and_scrubbed", "test_play_goes_through_the_stages"),
    "Pipeline: stages clicked, a problem of one's own": ("test_a_stage_is_clicked_and_a_problem",),
    "Labeller: ranking and rating timed on the reader": ("test_the_reader_s_own_trial",),
    "Labeller: 30 labels train DPO, before and after": ("test_thirty_labels_train_the_model",),
    "DPO and PPO: a toggle, stages light up": ("test_a_machine_is_toggled",),
    "Algorithms: bars in the legend's colours, all cards marked": ("test_bars_are_in_the_colours",),
    "Before held, and reset": ("test_hold_and_reset",),
    # cells
    "A cell broken on purpose and restored by keyboard": ("test_broken_on_purpose_by_keyboard",),
    "A syntax error takes the old picture away": ("test_a_syntax_error_takes",),
    "Your version follows the sliders": ("test_your_version_follows_the_sliders",),
    # runs
    "A run started, watched, stopped, resumed": ("test_a_run_is_started_watched_stopped_and_resumed",),
    "Rows appear as they are logged": ("test_rows_appear_as_they_are_logged",),
    "A run goes on when the server is killed": ("test_the_run_goes_on_when_the_server_is_killed",),
    "Progress and time move, shares on one axis, the drawer fits": ("test_the_head_moves",),
    "Samples and tokens by keyboard": ("test_samples_and_tokens_by_keyboard",),
    "Two runs compared under one cursor": ("test_two_runs_have_one_cursor",),
    # labels
    "Labelled by keyboard, undone across a reload": ("test_by_keyboard_with_undo",),
    "A label survives kill -9": ("test_a_label_survives_kill_9",),
    "The live reward model comes while one labels": ("test_the_live_model_comes_by_itself",),
    "Labels edited, taken out, brought back": ("test_the_table_edits",),
    "Labels as a file, in and out": ("test_a_file_goes_in_and_comes_out",),
    # the export
    "The export opens as files": ("test_it_opens_as_files",),
    "The export: a moved control moves the picture":
        ("test_a_moved_control_moves_the_picture", "test_the_instruments_of_a_chapter_move"),
    "The export: labels train in the page": ("test_labels_train_the_reward_model_in_the_page",),
    "The export: every step of a run": ("test_every_step_of_a_run_is_there",),
    "The export: what needs a server says so": ("test_what_needs_a_server_says_so",),
}
SENTENCES = ("studio/sentences_test.py::", "studio/estimates_test.py::", "studio/recorded_test.py::")
TERMS = ("test_no_term_is_left_undefined", "test_a_term_is_linked_where_it_is_first_used")
